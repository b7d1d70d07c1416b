// Promise 7 over replicas: what they saved they continue bit for bit, their optimizer sharded or
// not; and another number of them continues it too.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/processes/worker.h"
#include "tests/train/checkpoint_models.h"

namespace pipewright {
namespace {

using testing_checkpoint::TempFolder;

constexpr int kHalf = 3;  // the middle of a merge
constexpr int kAll = 6;
constexpr Features kFeatures = {.tied = true, .batch_norm = true, .dropout = true};

void train_replicas(const Arguments& a, int replicas, const std::string& transport) {
  const int last = std::stoi(a.at("last"));
  Strategy strategy = strategy_of(1, 4 / replicas);
  strategy.transport = transport;
  strategy.replicas = replicas;
  strategy.shard_optimizer = a.at("shard") == "1";
  strategy.merge_steps = 2;
  Trainer trainer(make_other_model(kFeatures, torch::kFloat64), cross_entropy(), adam(), strategy);
  const Resumed resumed = trainer.resume(a.at("dir"));
  train(&trainer, resumed ? static_cast<int>(resumed.step) : 0, last, kFeatures);
  trainer.save(a.at("dir"), {.background = false});
}

const Worker kTrainReplicas("train_replicas",
                            [](const Arguments& a) { train_replicas(a, 2, "gloo"); });

/// By two replicas; the folder of the checkpoint.
std::string run(const std::string& dir, int last, bool shard) {
  Processes workers("train_replicas", 2,
                    {{"dir", dir}, {"last", std::to_string(last)}, {"shard", shard ? "1" : "0"}});
  workers.expect_success();
  return in_folder(dir, step_folder(last));
}

/// The largest difference of any tensor; infinite where they are not the same ones.
double difference(const std::string& path, const std::string& other, Part part) {
  const Checkpoint a = open_checkpoint(path);
  const Checkpoint b = open_checkpoint(other);
  if (a.tensors(part).names() != b.tensors(part).names()) return INFINITY;
  double most = 0;
  for (const std::string& name : a.tensors(part).names()) {
    std::string left = testing_checkpoint::read_tensor(a.tensors(part), name);
    std::string right = testing_checkpoint::read_tensor(b.tensors(part), name);
    if (left == right) continue;
    if (a.tensors(part).find(name).dtype != DType::kF64 || left.size() != right.size())
      return INFINITY;
    const auto numbers = [](std::string& bytes) {
      return torch::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size() / 8)},
                              torch::kFloat64);
    };
    most = std::max(most, (numbers(left) - numbers(right)).abs().max().item<double>());
  }
  return most;
}

TEST(ReplicaCheckpoints, ContinueBitForBitShardedOrNot) {
  const TempFolder dir;
  const std::string expected = run(dir / "expected", kAll, false);
  for (const auto& [before, after] : {std::pair{false, false}, {true, true}, {true, false}}) {
    SCOPED_TRACE(testing::Message() << "sharded: " << before << ", then " << after);
    const std::string runs = dir / ("runs" + std::to_string(2 * before + after));
    run(runs, kHalf, before);
    const std::string path = run(runs, kAll, after);
    if (HasFailure()) return;
    for (const Part part : kAllParts) EXPECT_EQ(difference(path, expected, part), 0);
  }
}

TEST(ReplicaCheckpoints, AreContinuedByOneReplica) {
  const TempFolder dir;
  const std::string expected = run(dir / "expected", kAll, false);
  run(dir / "runs", kHalf, true);
  if (HasFailure()) return;
  train_replicas({{"dir", dir / "runs"}, {"last", std::to_string(kAll)}, {"shard", "0"}}, 1,
                 "threads");
  const std::string path = in_folder(dir / "runs", step_folder(kAll));
  for (const Part part : kAllParts) EXPECT_LE(difference(path, expected, part), 1e-12);
}

}  // namespace
}  // namespace pipewright
