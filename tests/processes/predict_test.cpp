// What is known in every process: predictions, a wish to stop, what each of them gives.

#include <gtest/gtest.h>

#include <thread>

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

/// More often than names are kept, and by processes that come late in turn.
const Worker kGather("gather_values", [](const Arguments&) {
  const int rank = std::stoi(std::getenv("RANK"));
  Strategy strategy = strategy_of(3, 3);
  strategy.transport = "gloo";
  Trainer trainer(make_model({}), cross_entropy(), sgd(), strategy);
  for (int i = 0; i < 20; ++i) {
    if (i % 3 == rank) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const auto all = trainer.gather({{"from", rank}, {"turn", i}});
    for (int other = 0; other < 3; ++other) {
      if (all.at(static_cast<std::size_t>(other)) != nlohmann::json{{"from", other}, {"turn", i}})
        throw std::runtime_error("got " + nlohmann::json(all).dump());
    }
  }
});

TEST(Gathering, GivesEveryProcessWhatAllGave) {
  Processes processes("gather_values", 3, {});
  processes.expect_success();
  Trainer alone(make_model({}), cross_entropy(), sgd(), strategy_of(3, 3));
  EXPECT_EQ(alone.gather(7), std::vector<nlohmann::json>{7});
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
