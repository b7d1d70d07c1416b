#include "pipewright/models/resnet.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"
#include "pipewright/models/convolution.h"

namespace pipewright {
namespace {

constexpr const char* kWhere = "resnet";
constexpr std::int64_t kExpansion = 4;  // what leaves a block is so much wider than its middle

struct StemImpl : torch::nn::Module {
  explicit StemImpl(const ResNetOptions& o)
      : small(o.small_images),
        body(register_module("body",
                             ConvolutionNorm(o.channels, o.width, small ? 3 : 7, small ? 1 : 2))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(body(x));
    return small ? x : torch::max_pool2d(x, 3, 2, 1);
  }

  bool small;
  ConvolutionNorm body;
};
TORCH_MODULE(Stem);

struct BlockImpl : torch::nn::Module {
  BlockImpl(std::int64_t from, std::int64_t middle, std::int64_t stride)
      : narrow(register_module("narrow", ConvolutionNorm(from, middle, 1))),
        look(register_module("look", ConvolutionNorm(middle, middle, 3, stride))),
        widen(register_module("widen", ConvolutionNorm(middle, kExpansion * middle, 1))) {
    torch::nn::init::zeros_(widen->norm->weight);
    if (from != kExpansion * middle || stride > 1)
      shortcut = register_module("shortcut", ConvolutionNorm(from, kExpansion * middle, 1, stride));
  }

  torch::Tensor forward(torch::Tensor x) {
    const auto y = widen(torch::relu(look(torch::relu(narrow(x)))));
    return torch::relu(y + (shortcut ? shortcut(x) : x));
  }

  ConvolutionNorm narrow, look, widen;
  ConvolutionNorm shortcut{nullptr};
};
TORCH_MODULE(Block);

double block_cost(const Picture& in, std::int64_t middle, std::int64_t stride) {
  const std::int64_t out = kExpansion * middle, left = in.after(stride);
  double cost = convolution_cost(in.channels, middle, 1, in.size) +
                convolution_cost(middle, middle, 3, left) + convolution_cost(middle, out, 1, left);
  if (in.channels != out || stride > 1) cost += convolution_cost(in.channels, out, 1, left);
  return cost;
}

void check(const ResNetOptions& o) {
  check_sizes(
      kWhere,
      {{"width", o.width}, {"channels", o.channels}, {"classes", o.classes}, {"image", o.image}});
  if (o.blocks.empty())
    throw InvalidArgument(kWhere, "no blocks; write their number by group, as in {3, 4, 6, 3}");
  for (const std::int64_t blocks : o.blocks) check_sizes(kWhere, {{"blocks", blocks}});
}

}  // namespace

Sequence make_resnet(const ResNetOptions& o) {
  check(o);
  Sequence model;
  model.set_seed(o.seed);
  const std::int64_t stride = o.small_images ? 1 : 2;
  Picture picture{o.channels, o.image};
  const std::int64_t kernel = o.small_images ? 3 : 7;
  add_made(&model, o.later, "stem", [o] { return Stem(o); },
           {.cost = convolution_cost(o.channels, o.width, kernel, picture.after(stride))});
  picture = {o.width, picture.after(stride * stride)};
  std::int64_t middle = o.width;
  for (std::size_t group = 0; group < o.blocks.size(); ++group, middle *= 2) {
    for (std::int64_t i = 0; i < o.blocks[group]; ++i) {
      const std::int64_t step = i == 0 && group > 0 ? 2 : 1;
      const std::int64_t from = picture.channels;
      add_made(&model, o.later, fmt::format("block{}_{}", group + 1, i + 1),
               [from, middle, step] { return Block(from, middle, step); },
               {.cost = block_cost(picture, middle, step)});
      picture = {kExpansion * middle, picture.after(step)};
    }
  }
  add_made(&model, o.later, "head",
           [from = picture.channels, classes = o.classes] { return Classifier(from, classes); },
           {.cost = convolution_cost(picture.channels, o.classes, 1, 1)});
  return model;
}

}  // namespace pipewright
