// A model whose layers are made by the processes that run them: the same bits for every number of
// them, and none ever holds much more than its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "pipewright/train/trainer.h"
#include "tests/processes/train_worker.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

constexpr int kBlocks = 8;
constexpr std::int64_t kWidth = 1024;  // 4 MiB a block
constexpr std::int64_t kWords = 64;

struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(torch::Tensor table) { weight = register_parameter("weight", table); }
  torch::Tensor forward(torch::Tensor x) { return torch::matmul(x, weight.t()); }
  torch::Tensor weight;
};
TORCH_MODULE(Head);

/// Also records the most parameters alive while it is made, in bytes.
struct Alive {
  static inline std::int64_t now = 0;
  static inline std::int64_t most = 0;
};
struct BlockImpl : torch::nn::Module {
  BlockImpl() : fc(register_module("fc", torch::nn::Linear(kWidth, kWidth))) {
    Alive::now += bytes();
    Alive::most = std::max(Alive::most, Alive::now);
  }
  ~BlockImpl() override { Alive::now -= bytes(); }
  BlockImpl(const BlockImpl&) = delete;
  static std::int64_t bytes() { return 4 * (kWidth * kWidth + kWidth); }
  torch::Tensor forward(torch::Tensor x) { return x + torch::tanh(fc(x)); }
  torch::nn::Linear fc;
};
TORCH_MODULE(Block);

Sequence large_model() {
  Sequence model;
  model.set_seed(5);
  model.add_later("embed", [] { return torch::nn::Embedding(kWords, kWidth); });
  for (int i = 0; i < kBlocks; ++i)
    model.add_later("block" + std::to_string(i), [] { return Block(); });
  model.add_later("head", [](const Tensors& tied) { return Head(tied[0]); },
                  {.tied = {"embed.weight"}});
  return model;
}

TrainResult train_large(const std::string& transport, int ranks) {
  Strategy strategy = strategy_of(ranks, 2);
  strategy.transport = transport;
  Trainer trainer(large_model(), cross_entropy(), adam(), strategy);
  torch::manual_seed(3);
  for (int step = 0; step < 2; ++step) {
    const auto words = torch::randint(kWords, {4}, torch::kInt64);
    trainer.step({{words}, {torch::randint(kWords, {4}, torch::kInt64)}});
  }
  TrainResult result;
  for (const auto& [name, tensor] : trainer.state_dict()) result[name] = tensor;
  return result;
}

const Worker kLarge("train_large", [](const Arguments& arguments) {
  const int ranks = std::stoi(arguments.at("ranks"));
  write_result(train_large("gloo", ranks));
  const std::int64_t share = (kBlocks + ranks - 1) / ranks + 1;  // and one being looked at
  if (Alive::most > share * BlockImpl::bytes())
    throw std::runtime_error("held " + std::to_string(Alive::most) + " bytes of blocks");
});

TEST(LaterLayers, AreMadeByTheProcessThatRunsThemWithTheSameBits) {
  const TrainResult expected = train_large("threads", 1);
  for (const int ranks : {2, 4}) {
    Processes processes("train_large", ranks, {{"ranks", std::to_string(ranks)}});
    processes.expect_success();
    std::set<std::string> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const auto& [name, tensor] : read_result(processes, rank)) {
        seen.insert(name);
        EXPECT_TRUE(tensor.equal(expected.at(name))) << "rank " << rank << ": " << name;
      }
    }
    EXPECT_EQ(seen.size(), expected.size());
  }
}

}  // namespace
}  // namespace pipewright
