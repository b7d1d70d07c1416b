// A process may have trainers one after the other, and several at once.

#include <gtest/gtest.h>

#include "tests/processes/worker.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

Strategy strategy_with(const std::string& transport) {
  Strategy strategy = strategy_of(2, 2);
  strategy.transport = transport;
  return strategy;
}

double train(Trainer& trainer, int steps) {
  double loss = 0;
  for (int step = 0; step < steps; ++step) loss = trainer.step(make_batch(8, step, {})).loss;
  return loss;
}

/// The same numbers each time, as with threads.
void expect_loss(double loss, double expected) {
  if (loss != expected) throw std::runtime_error("another loss");
}

const Worker kAgain("train_again", [](const Arguments&) {
  const auto make = [](const std::string& transport) {
    return std::make_unique<Trainer>(make_model({}), cross_entropy(), sgd(),
                                     strategy_with(transport));
  };
  const double expected = train(*make("threads"), 3);
  for (int round = 0; round < 3; ++round) expect_loss(train(*make("gloo"), 3), expected);
  const auto first = make("gloo");
  const auto second = make("gloo");
  expect_loss(train(*first, 3), expected);
  expect_loss(train(*second, 3), expected);
});

TEST(Trainers, MayFollowEachOtherAndLiveTogether) {
  Processes processes("train_again", 2, {});
  processes.expect_success();
}

}  // namespace
}  // namespace pipewright
