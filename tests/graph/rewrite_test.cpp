#include "pipewright/graph/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/graph/models.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

MicroBatchView view_of(const std::string& name) {
  const Graph graph = load_model(name);
  return {graph, analyse_batch(graph, make_inputs(name, 5))};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(MicroBatchView, BeforeIsTheGraphWithNamesAndLines) {
  EXPECT_THAT(view_of("mlp").before(),
              AllOf(HasSubstr("%1 = linear(x, fc1.weight, fc1.bias)  # make_models.py:"),
                    HasSubstr("%2 = tanh(%1)"), HasSubstr("  return %7\n")));
}

TEST(MicroBatchView, AfterHasThreeSubgraphs) {
  const std::string text = view_of("with_loss").after(4);
  EXPECT_THAT(text, AllOf(HasSubstr("replicated, for m = 0 .. 3:\n  %1[m] = linear(x[m], "),
                          HasSubstr("output 0 = mean("), HasSubstr("weighted by count"),
                          HasSubstr("body.fc1.weight.grad = add(weight[m] * grad[m])")));
  // The weight's penalty does not depend on the batch.
  const std::string shared = text.substr(0, text.find("replicated"));
  EXPECT_THAT(shared, AllOf(HasSubstr("pow(body.fc2.weight, 2)"), Not(HasSubstr("[m]"))));
}

TEST(MicroBatchView, OutputsAreJoinedAsTheyReduceTheBatch) {
  EXPECT_THAT(view_of("mlp").after(2), HasSubstr("concatenate(%7[0] .. %7[1]) along dimension 0"));
  EXPECT_THAT(view_of("summed_loss").after(2), HasSubstr("output 0 = add("));
  EXPECT_THAT(view_of("two_towers_pairs").after(2), HasSubstr("weighted by rows"));
  EXPECT_THAT(view_of("two_towers").after(2), HasSubstr("mixes samples"));
}

TEST(MicroBatchView, EveryOperationIsInOneSubgraph) {
  for (const std::string& name : all_models()) {
    const MicroBatchView view = view_of(name);
    const std::string after = view.after(3);
    const std::size_t lines =
        static_cast<std::size_t>(std::count(after.begin(), after.end(), '\n'));
    std::size_t gradients = count(after, ".grad = ");
    EXPECT_EQ(lines, 3 + view.lines().size() + gradients + count(after, "output ")) << name;
  }
}

TEST(MicroBatchView, PictureDrawsEveryCopyOfEveryOperation) {
  for (const std::string& name : all_models()) {
    const MicroBatchView view = view_of(name);
    const auto copied = static_cast<std::size_t>(
        std::count_if(view.lines().begin(), view.lines().end(),
                      [](const GraphLine& line) { return line.replicated; }));
    const std::string svg = view.svg(3);
    EXPECT_EQ(count(svg, "class=\"copy\""), 3 * copied) << name;
    EXPECT_EQ(count(svg, "class=\"shared\""), view.lines().size() - copied) << name;
    EXPECT_EQ(count(svg, "<g>"), count(svg, "</g>"));
    EXPECT_EQ(count(svg, "href"), 0U) << "needs no other file";
  }
}

TEST(MicroBatchView, PictureSaysHowManyCopiesItLeavesOut) {
  const std::string svg = view_of("mlp").svg(10);
  EXPECT_THAT(svg, AllOf(HasSubstr("10 micro-batches, 4 of them drawn"), HasSubstr("micro-batch 9"),
                         Not(HasSubstr("micro-batch 5<"))));
}

TEST(MicroBatchView, RefusesNoMicroBatches) {
  EXPECT_THAT(refusal([] { view_of("mlp").after(0); }), HasSubstr("for 0 micro-batches"));
  EXPECT_THAT(refusal([] { view_of("mlp").svg(-1); }), HasSubstr("cannot draw -1 micro-batches"));
}

}  // namespace
}  // namespace pipewright
