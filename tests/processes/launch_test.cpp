// Training through the launcher.

#include <gtest/gtest.h>

#include "tests/processes/train_on.h"

namespace pipewright {
namespace {

TEST(Launch, TrainsWithAProcessARank) {
  const std::vector<std::string> launch = {PIPEWRIGHT_PROGRAM, "launch", "-n", "2", "--"};
  Processes processes(kTrainOn, 1, {{"life", "30"}, {"steps", "4"}}, {}, {}, {{0, launch}});
  EXPECT_EQ(processes.wait(0), 0) << processes.words(0);
  const double expected = last_loss_with_threads(2, 4);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(last_loss(processes, rank), expected);
}

}  // namespace
}  // namespace pipewright
