// A model of one's own over a pipeline: pictures of stripes in noise, ten classes. docs/tutorial.md
// walks through it.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "pipewright/data/image_source.h"
#include "pipewright/data/loader.h"
#include "pipewright/input/generated_images.h"
#include "pipewright/train/plan_model.h"
#include "pipewright/train/trainer.h"

using namespace pipewright;

/// Two convolutions beside a shortcut.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int width)
      : conv1(register_module("conv1", conv(width))),
        norm(register_module("norm", torch::nn::GroupNorm(4, width))),
        conv2(register_module("conv2", conv(width))) {}

  static torch::nn::Conv2d conv(int width) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(width, width, 3).padding(1));
  }
  torch::Tensor forward(torch::Tensor x) {  // (B, C, H, W)
    return x + conv2(torch::relu(norm(conv1(x))));
  }

  torch::nn::Conv2d conv1;
  torch::nn::GroupNorm norm;
  torch::nn::Conv2d conv2;
};
TORCH_MODULE(Block);

Sequence make_model() {
  torch::manual_seed(1);
  constexpr int kWidth = 16;
  Sequence model;
  model.add("stem", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, kWidth, 3).padding(1)));
  for (int i = 0; i < 4; ++i) model.add("block" + std::to_string(i), Block(kWidth));
  model.add("pool", [](torch::Tensor x) { return torch::relu(x).mean({2, 3}); });
  model.add("head", torch::nn::Linear(kWidth, 10));
  return model;
}

DataLoader pictures(int count, std::uint64_t seed) {
  const auto images = std::make_shared<GeneratedImages>(count, 1, 16, seed);
  return {std::make_shared<ImageSource>(images), {.batch = 32, .seed = seed}};
}

Batch next_batch(DataLoader& loader) {
  SampleBatch batch = loader.next();
  return {std::move(batch.inputs), std::move(batch.targets)};
}

/// Measures the layers and takes the fastest plan that fits.
Strategy choose(const Sequence& model, const Batch& batch) {
  torch::set_num_threads(1);  // as each of the ranks will have
  PlanRequest request;
  request.ranks = 2;
  request.global_batch = 32;
  request.memory_bytes = 64 << 20;
  request.schedules = {"1f1b", "zb-h1"};
  request.most_micro_batches = 8;
  const Plan plan = plan_model(model, cross_entropy(), batch, request).search.plans.at(0);
  std::printf("planned: %s, %d micro-batches, %.1f ms a step\n", plan.schedule.c_str(),
              plan.micro_batches, 1e3 * plan.step_seconds);
  Strategy strategy = strategy_of(plan);
  strategy.threads_per_rank = 1;
  return strategy;
}

double share_right(Trainer& trainer, DataLoader& loader) {
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const Batch batch = next_batch(loader);
    const auto classes = trainer.predict(batch.inputs)[0].argmax(1);
    right += (classes == batch.targets[0]).sum().item<std::int64_t>();
  }
  return static_cast<double>(right) / 320;
}

int main(int argc, char** argv) try {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 150;
  DataLoader training = pictures(2000, 1);
  DataLoader unseen = pictures(320, 2);
  const Sequence model = make_model();
  const auto adam = [](const Parameters& parameters) {
    return std::make_unique<torch::optim::Adam>(parameters, 3e-3);
  };
  Trainer trainer(model, cross_entropy(), adam, choose(model, next_batch(training)));
  for (int step = 1; step <= steps; ++step) {
    const StepResult result = trainer.step(next_batch(training));
    if (step % 25 == 0 || step == steps)
      std::printf("step %3d  loss %.3f  %.0f pictures/s\n", step, result.loss, 32 / result.seconds);
  }
  std::printf("right on %.1f %% of pictures it never saw\n", 100 * share_right(trainer, unseen));
  trainer.save_weights("own_model.safetensors");  // as Python reads them
} catch (const std::exception& error) {
  std::fprintf(stderr, "own_model: %s\n", error.what());
  return 1;
}
