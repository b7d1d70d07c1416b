#include "pipewright/models/vgg.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"
#include "pipewright/models/convolution.h"

namespace pipewright {
namespace {

constexpr const char* kWhere = "vgg";

struct ConvolutionImpl : torch::nn::Module {
  ConvolutionImpl(std::int64_t from, std::int64_t to, bool with_norm, bool then_pool)
      : pools(then_pool),
        body(register_module("body",
                             torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1)))) {
    torch::nn::init::kaiming_normal_(body->weight, 0, torch::kFanOut, torch::kReLU);
    torch::nn::init::zeros_(body->bias);
    if (with_norm) norm = register_module("norm", torch::nn::BatchNorm2d(to));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = body(x);
    if (norm) x = norm(x);
    x = torch::relu(x);
    return pools ? torch::max_pool2d(x, 2) : x;
  }

  bool pools;
  torch::nn::Conv2d body;
  torch::nn::BatchNorm2d norm{nullptr};
};
TORCH_MODULE(Convolution);

/// Of the last layers: the first takes pictures of any size, the last gives logits as they are.
struct FullImpl : torch::nn::Module {
  FullImpl(std::int64_t from, std::int64_t to, std::int64_t pool_to, double drop, bool is_last)
      : pooled(pool_to),
        dropout(drop),
        last(is_last),
        linear(register_module("linear", pipewright::linear(from, to, 0.01))) {}

  torch::Tensor forward(torch::Tensor x) {
    if (pooled > 0) x = torch::adaptive_avg_pool2d(x, {pooled, pooled}).flatten(1);
    x = project(linear, x);
    return last ? x : torch::dropout(torch::relu(x), dropout, is_training());
  }

  std::int64_t pooled;
  double dropout;
  bool last;
  torch::nn::Linear linear;
};
TORCH_MODULE(Full);

void check(const VggOptions& o) {
  check_sizes(kWhere, {{"hidden", o.hidden},
                       {"pooled", o.pooled},
                       {"channels", o.channels},
                       {"classes", o.classes}});
  check_dropout(kWhere, o.dropout);
  if (o.convolutions.empty() || o.convolutions.size() != o.widths.size()) {
    throw InvalidArgument(kWhere,
                          fmt::format("{} groups of convolutions, {} widths; there must be one of "
                                      "each for every group",
                                      o.convolutions.size(), o.widths.size()));
  }
  for (std::size_t i = 0; i < o.widths.size(); ++i)
    check_sizes(kWhere, {{"convolutions", o.convolutions[i]}, {"widths", o.widths[i]}});
  if (o.image >> o.widths.size() < 1) {
    throw InvalidArgument(kWhere,
                          fmt::format("pictures of {} x {} are halved {} times; use larger ones, "
                                      "or fewer groups",
                                      o.image, o.image, o.widths.size()));
  }
}

}  // namespace

Sequence make_vgg(const VggOptions& o) {
  check(o);
  Sequence model;
  model.set_seed(o.seed);
  Picture picture{o.channels, o.image};
  for (std::size_t group = 0; group < o.widths.size(); ++group) {
    const std::int64_t to = o.widths[group];
    for (std::int64_t i = 0; i < o.convolutions[group]; ++i) {
      const bool pools = i + 1 == o.convolutions[group];
      const std::int64_t from = picture.channels;
      add_made(&model, o.later, fmt::format("conv{}_{}", group + 1, i + 1),
               [from, to, norm = o.norm, pools] { return Convolution(from, to, norm, pools); },
               {.cost = convolution_cost(from, to, 3, picture.size)});
      picture = {to, pools ? picture.size / 2 : picture.size};
    }
  }
  const auto add_full = [&](const char* name, std::int64_t from, std::int64_t to,
                            std::int64_t pooled, bool last) {
    add_made(&model, o.later, name, [=] { return Full(from, to, pooled, o.dropout, last); },
             {.cost = convolution_cost(from, to, 1, 1)});
  };
  add_full("linear1", picture.channels * o.pooled * o.pooled, o.hidden, o.pooled, false);
  add_full("linear2", o.hidden, o.hidden, 0, false);
  add_full("head", o.hidden, o.classes, 0, true);
  return model;
}

}  // namespace pipewright
