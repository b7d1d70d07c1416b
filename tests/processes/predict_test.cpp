// Predictions are known in every process.

#include <gtest/gtest.h>

#include "tests/processes/train_worker.h"

namespace pipewright {
namespace {

TrainResult predict_with(const std::string& transport, int ranks) {
  Strategy strategy = strategy_of(ranks, 3);
  strategy.transport = transport;
  Trainer trainer(make_model({.skips = true}), cross_entropy(), sgd(), strategy);
  TrainResult result;
  for (int step = 0; step < 3; ++step) {  // twice the same key, and trained between
    const Batch batch = make_batch(7, step, {});
    result["predicted" + std::to_string(step)] = trainer.predict(batch.inputs)[0];
    trainer.step(batch);
  }
  return result;
}

const Worker kPredict("predict", [](const Arguments& a) {
  write_result(predict_with("gloo", std::stoi(a.at("ranks"))));
});

/// One asks; all of them, in both replicas, learn it with the same step.
const Worker kAskToStop("ask_to_stop", [](const Arguments&) {
  Strategy strategy = strategy_of(2, 3);
  strategy.transport = "gloo";
  strategy.replicas = 2;
  Trainer trainer(make_model({}), cross_entropy(), sgd(), strategy);
  int steps = 0;
  for (bool asked = false; !asked && steps < 10; ++steps) {
    if (std::string(std::getenv("RANK")) == "2" && steps == 3) trainer.ask_to_stop();
    asked = trainer.step(make_batch(8, steps, {})).stop_asked;
  }
  if (steps != 4) throw std::runtime_error("stopped after " + std::to_string(steps));
  if (trainer.step(make_batch(8, 0, {})).stop_asked) throw std::runtime_error("asked once more");
});

TEST(AskingToStop, IsHeardByAllAtTheSameStep) {
  Processes processes("ask_to_stop", 4, {});
  processes.expect_success();
}

TEST(ProcessPredictions, AreThoseOfThreadsInEveryProcess) {
  const int ranks = 3;
  const TrainResult expected = predict_with("threads", ranks);
  Processes processes("predict", ranks, {{"ranks", std::to_string(ranks)}});
  processes.expect_success();
  for (int rank = 0; rank < ranks; ++rank) {
    const TrainResult result = read_result(processes, rank);
    ASSERT_EQ(result.size(), expected.size());
    for (const auto& [name, tensor] : expected)
      EXPECT_TRUE(result.at(name).equal(tensor)) << "rank " << rank << ": " << name;
  }
}

}  // namespace
}  // namespace pipewright
