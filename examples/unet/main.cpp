// Finds discs in noise: a small U-Net over two ranks. Its skips go from layers of the first rank to
// layers of the second, past everything between; its batch norms see micro-batches.
//
//     unet [STEPS]
#include <cstdio>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
#include "pipewright/train/trainer.h"

namespace pipewright {
namespace {

constexpr int kSize = 32;  // pixels a side
constexpr int kRows = 32;  // images a batch
constexpr int kMicroBatches = 4;

struct ConvolutionImpl : torch::nn::Module {
  ConvolutionImpl(int from, int to)
      : convolution(register_module(
            "convolution",
            torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(to))) {}
  torch::Tensor forward(torch::Tensor x) { return torch::relu(norm(convolution(x))); }
  torch::nn::Conv2d convolution;
  torch::nn::BatchNorm2d norm;
};
TORCH_MODULE(Convolution);

/// Halves the image; what it saw at full size is its second output, for a skip.
struct DownImpl : torch::nn::Module {
  DownImpl(int from, int to)
      : first(register_module("first", Convolution(from, to))),
        second(register_module("second", Convolution(to, to))) {}
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    const auto full = second(first(x));
    return {torch::max_pool2d(full, 2), full};
  }
  Convolution first, second;
};
TORCH_MODULE(Down);

/// Doubles the image and puts the skip beside it.
struct UpImpl : torch::nn::Module {
  UpImpl(int from, int skip, int to)
      : body(register_module("body", Convolution(from + skip, to))) {}
  torch::Tensor forward(torch::Tensor x, torch::Tensor skip) {
    return body(torch::cat({torch::upsample_nearest2d(x, skip.sizes().slice(2)), skip}, 1));
  }
  Convolution body;
};
TORCH_MODULE(Up);

//     down1 --------------------------- up1 - out      32 x 32
//          down2 ----------------- up2                 16 x 16
//               bottom1 - bottom2                       8 x 8
Sequence make_unet() {
  Sequence model;
  model.add("down1", Down(1, 16), {.stash = {"full"}});
  model.add("down2", Down(16, 32), {.stash = {"half"}});
  model.add("bottom1", Convolution(32, 64)).add("bottom2", Convolution(64, 64));
  model.add("up2", Up(64, 32, 32), {.pop = {"half"}});
  model.add("up1", Up(32, 16, 16), {.pop = {"full"}});
  model.add("out", torch::nn::Conv2d(16, 1, 1));
  return model;
}

/// Each image has three discs, a little lighter than the noise around them; targets are 1 inside.
Batch draw_images(int rows) {
  const auto axis = torch::arange(kSize, torch::kFloat);
  auto discs = torch::zeros({rows, kSize, kSize}, torch::kBool);
  for (int i = 0; i < 3; ++i) {
    const auto x = torch::rand({rows, 1, 1}) * kSize;
    const auto y = torch::rand({rows, 1, 1}) * kSize;
    const auto radius = 3 + 4 * torch::rand({rows, 1, 1});
    const auto dx = axis.view({1, 1, kSize}) - x;
    const auto dy = axis.view({1, kSize, 1}) - y;
    discs = discs.logical_or(dx * dx + dy * dy < radius * radius);
  }
  const auto targets = discs.to(torch::kFloat).unsqueeze(1);  // (B, 1, H, W)
  return {.inputs = {targets + torch::randn_like(targets)}, .targets = {targets}};
}

/// Mean over pixels, summed over images: the engine divides by the weight of the whole batch.
Loss pixel_loss() {
  Loss loss;
  loss.value = [](const Tensors& outputs, const Tensors& targets) -> LossValue {
    const auto mean = torch::binary_cross_entropy_with_logits(outputs[0], targets[0]);
    const auto rows = static_cast<double>(targets[0].size(0));
    return {mean * rows, rows};
  };
  return loss;
}

/// Of the pixels found or to be found, the share that is both.
double intersection_over_union(const torch::Tensor& logits, const torch::Tensor& targets) {
  const auto found = logits > 0;
  const auto wanted = targets > 0.5;
  return found.logical_and(wanted).sum().item<double>() /
         found.logical_or(wanted).sum().item<double>();
}

void run(int steps) {
  torch::manual_seed(1);
  Strategy strategy;
  strategy.ranks = 2;
  strategy.micro_batches = kMicroBatches;
  strategy.sizes = {4, 3};  // down and bottom; up and out, about as much work
  const auto adam = [](const Parameters& parameters) {
    return std::make_unique<torch::optim::Adam>(parameters, 3e-3);
  };
  Trainer trainer(make_unet(), pixel_loss(), adam, strategy);
  const Batch fresh = draw_images(64);
  for (int step = 1; step <= steps; ++step) {
    const StepResult result = trainer.step(draw_images(kRows));
    if (step % 20 != 0 && step != 1 && step != steps) continue;
    const auto logits = trainer.predict(fresh.inputs)[0];
    std::printf("step %3d  loss %.4f  IoU on new images %.3f\n", step, result.loss,
                intersection_over_union(logits, fresh.targets[0]));
  }
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) try {
  using namespace pipewright;
  run(argc > 1 ? static_cast<int>(parse_integer(argv[1], "STEPS", 1, 1'000'000)) : 100);
} catch (const pipewright::InvalidArgument& error) {
  std::fprintf(stderr, "unet: %s\n", error.what());
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "unet: %s\n", error.what());
  return 1;
}
