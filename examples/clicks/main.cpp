// Which advertisements are clicked? A plain LibTorch training loop; one line puts it on two lanes.
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "pipewright/data/click_source.h"
#include "pipewright/data/metrics.h"
#include "pipewright/input/generated_clicks.h"
#include "pipewright/micro/auto_micro_batch.h"

using namespace pipewright;

constexpr int kNumbers = 3, kFields = 7, kValues = 8, kRows = 256;

/// Embeddings of the fields beside the numbers, and an MLP. Knows nothing of micro-batches.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    const int width = kFields * 8 + kNumbers;
    table = register_module(
        "table",
        torch::nn::Embedding(torch::nn::EmbeddingOptions(kFields * (kValues + 1), 8).sparse(true)));
    mlp =
        register_module("mlp", torch::nn::Sequential(torch::nn::Linear(width, 32),
                                                     torch::nn::ReLU(), torch::nn::Linear(32, 32),
                                                     torch::nn::ReLU(), torch::nn::Linear(32, 1)));
  }
  torch::Tensor forward(const torch::Tensor& numbers, const torch::Tensor& ids) {
    const auto rows = ids + torch::arange(kFields) * (kValues + 1);  // each field has its own
    return mlp->forward(torch::cat({table(rows).flatten(1), numbers}, 1)).squeeze(1);
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Sequential mlp{nullptr};
};
TORCH_MODULE(Net);

/// Rows of a made log in which two fields count together.
Batch rows_of_log(std::int64_t first, std::int64_t rows) {
  const ClickSource source(std::make_shared<GeneratedClicks>(ClickLogOptions{.rows = rows,
                                                                             .numeric = kNumbers,
                                                                             .fields = kFields,
                                                                             .values = kValues,
                                                                             .first_row = first}));
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  SampleBatch batch = source.batch(all, 0);
  return {std::move(batch.inputs), std::move(batch.targets)};
}

int main(int argc, char** argv) try {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  torch::manual_seed(1);
  Net net;
  torch::optim::Adagrad optimizer(net->parameters(), torch::optim::AdagradOptions(0.1));
  AutoMicroBatch step(net, binary_cross_entropy(), {.num = 4, .lanes = 2});  // the line

  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    const auto loss = step.backward(rows_of_log(i * kRows, kRows)).loss;  // was: loss.backward()
    optimizer.step();
    if (i % 40 == 0) std::printf("step %3d  loss %.4f\n", i, loss.item<double>());
  }
  const torch::NoGradGuard no_grad;
  const Batch fresh = rows_of_log(1'000'000, 2000);
  const auto scores = net->forward(fresh.inputs[0], fresh.inputs[1]);
  std::printf("area under the curve on new clicks: %.3f\n",
              *area_under_curve(scores, fresh.targets[0]));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
