// All processes must make the same trainer; one that does not is named with the first difference.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/processes/train_on.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

const Worker kDiffering("differing", [](const Arguments& arguments) {
  const bool other = std::string(std::getenv("RANK")) == "1";
  const std::string what = other ? arguments.at("what") : "";
  Strategy strategy = strategy_of(2, what == "micro_batches" ? 4 : 2);
  strategy.transport = "gloo";
  if (what == "seed") strategy.seed = 77;
  torch::nn::Sequential model;
  model->push_back("in", torch::nn::Linear(8, 8));
  model->push_back("out", torch::nn::Linear(8, what == "width" ? 5 : 4));
  if (what == "layer") model->push_back("more", torch::nn::Identity());
  Trainer trainer(Sequence::from(model), cross_entropy(), sgd(), strategy);
});

void expect_difference(const std::string& what, const std::string& words) {
  SCOPED_TRACE(what);
  Processes processes("differing", 2, {{"what", what}});
  for (const int rank : {0, 1}) {
    EXPECT_EQ(processes.wait(rank), 1);
    EXPECT_THAT(processes.words(rank), HasSubstr(words));
    EXPECT_THAT(processes.words(rank), HasSubstr("all processes must make the same trainer"));
  }
}

TEST(Agreement, TheFirstDifferenceIsNamed) {
  expect_difference("micro_batches",
                    "process 1 has micro_batches = 4, process 0 has micro_batches = 2");
  expect_difference("seed", "process 1 has seed = 77, process 0 has seed = 1");
  expect_difference("width",
                    "process 1 has parameter 'out.weight' of Float [5, 8], process 0 has parameter "
                    "'out.weight' of Float [4, 8]");
  expect_difference("layer",
                    "process 1 has layers by stage 1, 2, process 0 has layers by stage 1, 1");
}

}  // namespace
}  // namespace pipewright
