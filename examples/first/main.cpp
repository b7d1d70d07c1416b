// Which points of the plane lie outside a circle? A small classifier, trained over two ranks.
#include <cstdio>

#include "pipewright/train/trainer.h"

using namespace pipewright;

Batch make_batch(int rows) {
  const auto points = torch::randn({rows, 2});
  const auto outside = (points.norm(2, 1) > 1.2).to(torch::kLong);
  return {.inputs = {points}, .targets = {outside}};
}

int main() try {
  torch::manual_seed(1);
  Sequence model;
  model.add("fc1", torch::nn::Linear(2, 64)).add("relu1", torch::nn::ReLU());
  model.add("fc2", torch::nn::Linear(64, 64)).add("relu2", torch::nn::ReLU());
  model.add("fc3", torch::nn::Linear(64, 2));

  Strategy strategy;
  strategy.ranks = 2;          // the layers are split over two threads, each with its cores
  strategy.micro_batches = 4;  // a batch goes through in four slices, so that both are busy
  const auto adam = [](const Parameters& parameters) {
    return std::make_unique<torch::optim::Adam>(parameters, 3e-3);
  };
  Trainer trainer(model, cross_entropy(), adam, strategy);

  for (int step = 0; step <= 200; ++step) {
    const StepResult result = trainer.step(make_batch(256));
    if (step % 40 == 0) std::printf("step %3d  loss %.4f\n", step, result.loss);
  }
  const Batch fresh = make_batch(1000);
  const auto right = trainer.predict(fresh.inputs)[0].argmax(1) == fresh.targets[0];
  std::printf("right on %.1f %% of new points\n", right.sum().item<double>() / 10);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
