#include "pipewright/models/unet.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "pipewright/base/error.h"
#include "pipewright/models/convolution.h"

namespace pipewright {
namespace {

constexpr const char* kWhere = "unet";
constexpr double kLeak = 0.01;

/// One convolution with what follows it; before or after it, what its place in the network asks
/// for.
struct ConvolutionImpl : torch::nn::Module {
  ConvolutionImpl(std::int64_t from, std::int64_t to, double dropout)
      : convolution(register_module("convolution", pipewright::convolution(from, to, 3))),
        drop(register_module("drop", torch::nn::Dropout2d(dropout))),
        norm(register_module("norm", torch::nn::InstanceNorm2d(to))) {}
  torch::Tensor forward(torch::Tensor x) {
    return torch::leaky_relu(norm(drop(convolution(x))), kLeak);
  }
  torch::nn::Conv2d convolution;
  torch::nn::Dropout2d drop;
  torch::nn::InstanceNorm2d norm;
};
TORCH_MODULE(Convolution);

/// The last one of a step down: half the picture, and the whole one for the skip.
struct DownImpl : ConvolutionImpl {
  using ConvolutionImpl::ConvolutionImpl;
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    const auto whole = ConvolutionImpl::forward(x);
    return {torch::max_pool2d(whole, 2), whole};
  }
};
TORCH_MODULE(Down);

/// The first one of a step up: as large as the skip, and beside it.
struct UpImpl : ConvolutionImpl {
  using ConvolutionImpl::ConvolutionImpl;
  torch::Tensor forward(torch::Tensor x, torch::Tensor skip) {
    const auto large = torch::upsample_nearest2d(x, skip.sizes().slice(2));
    return ConvolutionImpl::forward(torch::cat({large, skip}, 1));
  }
};
TORCH_MODULE(Up);

struct SegmentImpl : torch::nn::Module {
  SegmentImpl(std::int64_t from, std::int64_t classes)
      : convolution(register_module("convolution", pipewright::convolution(from, classes, 1))) {}
  torch::Tensor forward(torch::Tensor x) { return convolution(x).permute({0, 2, 3, 1}); }
  torch::nn::Conv2d convolution;
};
TORCH_MODULE(Segment);

void check(const UNetOptions& o) {
  check_sizes(kWhere, {{"depth", o.depth},
                       {"convolutions", o.convolutions},
                       {"width", o.width},
                       {"channels", o.channels},
                       {"classes", o.classes}});
  check_dropout(kWhere, o.dropout);
  if (o.width % 2 != 0)
    throw InvalidArgument(kWhere, fmt::format("width = {} is odd; use an even one", o.width));
  if (o.depth > 32 || o.image >> o.depth < 2) {
    throw InvalidArgument(kWhere,
                          fmt::format("pictures of {} x {} cannot be halved {} times; use larger "
                                      "ones, or less depth",
                                      o.image, o.image, o.depth));
  }
}

/// The convolutions of a step: from, middle ..., to.
std::vector<std::pair<std::int64_t, std::int64_t>> widths_of_step(std::int64_t from,
                                                                  std::int64_t middle,
                                                                  std::int64_t to,
                                                                  std::int64_t count) {
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.emplace_back(i == 0 ? from : middle, i + 1 == count ? to : middle);
  return result;
}

class Builder {
 public:
  explicit Builder(const UNetOptions& options) : o_(options) { model_.set_seed(o_.seed); }

  Sequence make() {
    std::int64_t size = o_.image;
    for (std::int64_t i = 0; i < o_.depth; ++i, size /= 2)
      step_down(i, i == 0 ? o_.channels : width(i - 1), size);
    const auto bottom =
        widths_of_step(width(o_.depth - 1), width(o_.depth), width(o_.depth - 1), o_.convolutions);
    for (std::size_t k = 0; k < bottom.size(); ++k)
      add<Convolution>(fmt::format("bottom_{}", k + 1), bottom[k], size, {});
    for (std::int64_t i = o_.depth; i-- > 0;) step_up(i, o_.image >> i);
    add_made(&model_, o_.later, "segment",
             [from = width(0) / 2, to = o_.classes] { return Segment(from, to); },
             {.cost = convolution_cost(width(0) / 2, o_.classes, 1, o_.image)});
    return std::move(model_);
  }

 private:
  std::int64_t width(std::int64_t step) const { return o_.width << step; }
  static std::string skip(std::int64_t step) { return fmt::format("skip{}", step + 1); }

  void step_down(std::int64_t step, std::int64_t from, std::int64_t size) {
    const auto widths = widths_of_step(from, width(step), width(step), o_.convolutions);
    for (std::size_t k = 0; k < widths.size(); ++k) {
      const std::string name = fmt::format("down{}_{}", step + 1, k + 1);
      if (k + 1 < widths.size()) {
        add<Convolution>(name, widths[k], size, {});
      } else {
        add<Down>(name, widths[k], size, {.stash = {skip(step)}});
      }
    }
  }

  void step_up(std::int64_t step, std::int64_t size) {
    const auto widths =
        widths_of_step(2 * width(step), width(step) / 2, width(step) / 2, o_.convolutions);
    for (std::size_t k = 0; k < widths.size(); ++k) {
      const std::string name = fmt::format("up{}_{}", step + 1, k + 1);
      if (k > 0) {
        add<Convolution>(name, widths[k], size, {});
      } else {
        add<Up>(name, widths[k], size, {.pop = {skip(step)}});
      }
    }
  }

  template <typename Module>
  void add(const std::string& name, std::pair<std::int64_t, std::int64_t> widths, std::int64_t size,
           LayerOptions options) {
    options.cost = convolution_cost(widths.first, widths.second, 3, size);
    add_made(
        &model_, o_.later, name,
        [widths, dropout = o_.dropout] { return Module(widths.first, widths.second, dropout); },
        std::move(options));
  }

  UNetOptions o_;
  Sequence model_;
};

}  // namespace

Sequence make_unet(const UNetOptions& options) {
  check(options);
  return Builder(options).make();
}

}  // namespace pipewright
