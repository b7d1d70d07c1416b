#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/graph/batch_analysis.h"
#include "tests/graph/models.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

BatchReport analyse(const std::string& name, std::int64_t rows = 5) {
  return analyse_batch(load_model(name), make_inputs(name, rows), {.check_rules = true});
}

Graph scripted(const std::string& body, const std::string& arguments = "x") {
  torch::jit::Module module("Model");
  torch::manual_seed(2);
  module.register_parameter("weight", torch::randn({4, 4}, torch::kDouble), false);
  module.define("def forward(self, " + arguments + "):\n  " + body + "\n");
  return Graph::from(module);
}

BatchReport analyse_code(const std::string& body) {
  torch::manual_seed(3);
  return analyse_batch(scripted(body), {torch::randn({5, 4}, torch::kDouble)},
                       {.check_rules = true});
}

class BatchAnalysis : public testing::TestWithParam<std::string> {};

TEST_P(BatchAnalysis, RulesAgreeWithWhatRunningShows) {
  for (const std::int64_t rows : {2, 4, 5}) {
    EXPECT_THAT(analyse(GetParam(), rows).broken_rules, IsEmpty());
  }
}

TEST_P(BatchAnalysis, ChangesNothingOfTheModel) {
  const Graph graph = load_model(GetParam());
  const Graph untouched = load_model(GetParam());
  analyse_batch(graph, make_inputs(GetParam(), 5));
  for (std::size_t i = 0; i < graph.attributes().size(); ++i) {
    const auto& attribute = graph.attributes()[i];
    if (attribute.kind == GraphAttribute::Kind::kMode) continue;
    EXPECT_TRUE(attribute.tensor.equal(untouched.attributes()[i].tensor)) << attribute.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BatchAnalysis, testing::ValuesIn(all_models()),
                         [](const auto& test) { return test.param; });

TEST(BatchReport, ModelsWithoutMixingCarryTheBatchToTheirOutputs) {
  for (const std::string name :
       {"mlp", "mlp_traced", "cnn", "resnet", "unet", "transformer", "tied", "sequence_first",
        "lstm", "encoder_decoder", "deepfm", "multi_input", "multi_output", "control_flow"}) {
    const BatchReport report = analyse(name);
    EXPECT_THAT(report.mixings, IsEmpty()) << name << "\n" << report.text();
    for (const Spread& spread : report.outputs) EXPECT_EQ(spread, Spread::rows(0)) << name;
    EXPECT_NO_THROW(report.check());
  }
}

TEST(BatchReport, LossesInTheGraphSayHowTheyReduceTheBatch) {
  EXPECT_EQ(analyse("two_towers_pairs").outputs[0].kind, Spread::Kind::kMean);
  EXPECT_EQ(analyse("summed_loss").outputs[0].kind, Spread::Kind::kSum);
  const Spread by_count = analyse("masked_loss").outputs[0];
  EXPECT_EQ(by_count.kind, Spread::Kind::kRatio);
  EXPECT_NE(by_count.count, nullptr);
  const Spread by_target = analyse("with_loss").outputs[0];
  EXPECT_EQ(by_target.kind, Spread::Kind::kRatio);
  EXPECT_EQ(by_target.ignored, -100);
  EXPECT_THAT(analyse("masked_loss").text(),
              AllOf(HasSubstr("output 0 is a mean over the batch by count"),
                    HasSubstr("aten::sum (make_models.py:"), HasSubstr("no operation mixes")));
}

std::string reason(const std::string& name) {
  const BatchReport report = analyse(name);
  return refusal([&] { report.check(); });
}

TEST(BatchReport, BatchNormInTrainingIsRefusedUnlessAllowed) {
  for (const std::string name : {"cnn_norm", "cnn_norm_traced"}) {
    const BatchReport report = analyse(name);
    EXPECT_EQ(report.mixings.size(), 2U);
    EXPECT_THAT(refusal([&] { report.check(); }),
                AllOf(HasSubstr("2 operations mix samples"), HasSubstr("batch norm in training"),
                      HasSubstr("aten::batch_norm (")));
    EXPECT_NO_THROW(report.check(/*allow_batch_norm=*/true));
  }
  Graph graph = load_model("cnn_norm");
  graph.train(false);
  EXPECT_THAT(analyse_batch(graph, make_inputs("cnn_norm", 5)).mixings, IsEmpty());
}

TEST(BatchReport, NamesWhatMixesSamplesWithItsLine) {
  EXPECT_THAT(reason("two_towers"),
              AllOf(HasSubstr("aten::matmul (make_models.py:"), HasSubstr("in-batch negatives")));
  EXPECT_THAT(reason("batch_softmax"),
              AllOf(HasSubstr("aten::softmax (make_models.py:"),
                    HasSubstr("takes a softmax over dimension 0, which is the batch")));
  EXPECT_THAT(reason("data_branch"), AllOf(HasSubstr("prim::If (make_models.py:"),
                                           HasSubstr("branches on values of the batch")));
}

std::string code_reason(const std::string& body) {
  const BatchReport report = analyse_code(body);
  EXPECT_THAT(report.broken_rules, IsEmpty()) << body;
  return refusal([&] { report.check(); });
}

TEST(BatchReport, RefusesWhatLooksAtOtherSamples) {
  EXPECT_THAT(code_reason("return x - x.mean(0)"), HasSubstr("combines every sample with a sum"));
  EXPECT_THAT(code_reason("return x / x.max()"), HasSubstr("takes a maximum over dimension 0"));
  EXPECT_THAT(code_reason("return x.cumsum(0)"), HasSubstr("a cumulative sum over dimension 0"));
  EXPECT_THAT(code_reason("return x.pow(2).mean().sqrt()"), HasSubstr("is sqrt of a sum or mean"));
  EXPECT_THAT(code_reason("return x.sum() + self.weight.sum()"), HasSubstr("is add of a sum"));
  EXPECT_THAT(code_reason("return torch.mm(x.t(), x)"), HasSubstr("takes a sum over the batch"));
  EXPECT_THAT(code_reason("return x.flip(0)"), HasSubstr("gives other values for 5 rows"));
  EXPECT_THAT(code_reason("return x.sort(0)[0]"), HasSubstr("gives other values for 5 rows"));
  EXPECT_THAT(code_reason("return x.view(5, 2, 2)"),
              AllOf(HasSubstr("the number of rows is a constant"), HasSubstr("x.size(0)")));
  EXPECT_THAT(code_reason("self.weight.add_(1.0)\n  return torch.mm(x, self.weight)"),
              HasSubstr("writes into 'weight', once for every micro-batch"));
  EXPECT_THAT(code_reason("return x + torch.ones(5, 4)"),
              HasSubstr("combines the batch with a shared tensor of 5 rows"));
}

TEST(BatchReport, AcceptsWhatKeepsSamplesApart) {
  for (const char* body :
       {"return x.view(x.size(0), 2, 2).sum(1)", "return x.view(-1, 2).sum(1).view(-1, 2)",
        "return torch.mm(x, self.weight).softmax(1)", "return x.t().softmax(0).t()",
        "return torch.stack([x, x * 2], 1).flatten(1)", "return x[:, 1:3] + x[:, :1]",
        "return torch.zeros(x.size(0), 4) + x", "return torch.cat([x, x], 1).chunk(2, 1)[0]",
        "return x.unsqueeze(1).expand(-1, 3, -1).mean(1)", "return x.roll(1, 1)",
        "return x + torch.rand(x.size(0), 4)", "return torch.dropout(x, 0.5, True)"}) {
    EXPECT_EQ(code_reason(body), "accepted") << body;
    EXPECT_EQ(analyse_code(body).outputs[0].kind, Spread::Kind::kRows) << body;
  }
}

TEST(BatchReport, ArithmeticOfLossesKeepsHowTheyReduce) {
  const auto kind = [](const char* body) { return analyse_code(body).outputs[0].kind; };
  EXPECT_EQ(kind("return x.sum() / x.size(0)"), Spread::Kind::kMean);
  EXPECT_EQ(kind("return x.mean() * x.size(0)"), Spread::Kind::kSum);
  EXPECT_EQ(kind("return x.mean() + 0.1 * self.weight.pow(2).sum()"), Spread::Kind::kMean);
  EXPECT_EQ(kind("return (x.pow(2).sum(1).mean() - x.mean()) * 0.5"), Spread::Kind::kMean);
  EXPECT_EQ(kind("return -x.sum(0).sum() + x.abs().sum()"), Spread::Kind::kSum);
  EXPECT_EQ(kind("return x.sum() / (x > 0).sum()"), Spread::Kind::kRatio);
}

TEST(BatchReport, OperationsWithoutARuleAreTried) {
  EXPECT_THAT(analyse_code("return x.roll(1, 1)").tried, ElementsAre("aten::roll"));
}

TEST(BatchReport, SamplesMayLieInTurns) {
  // (steps, samples, width) as one dimension of steps * samples, and back.
  const char* body =
      "y = x.t()\n  z = torch.tanh(y.reshape(-1, 1) * 2)\n  return z.view(4, x.size(0)).t()";
  EXPECT_EQ(code_reason(body), "accepted");
  EXPECT_EQ(analyse_code(body).outputs[0], Spread::rows(0));
}

TEST(BatchReport, TracedModelsKnowTheirLinesToo) {
  EXPECT_THAT(analyse("cnn_norm_traced").mixings[0].operation,
              HasSubstr("aten::batch_norm (make_models.py:"));
}

TEST(BatchReport, SharedInputsAreNotSplit) {
  const Graph graph = scripted("return x * scale.softmax(0)", "x, scale");
  const Tensors example = {torch::randn({5, 4}), torch::randn({4})};
  EXPECT_THAT(refusal([&] { analyse_batch(graph, example); }),
              HasSubstr("input 'scale' of the example has 4 rows, others have 5"));
  const BatchReport report = analyse_batch(graph, example, {.shared_inputs = {0, 1}});
  EXPECT_EQ(report.outputs[0], Spread::rows(0));
  EXPECT_THAT(report.mixings, IsEmpty());
}

TEST(BatchReport, RefusesExamplesThatDoNotFit) {
  const Graph graph = load_model("mlp");
  EXPECT_THAT(refusal([&] { analyse_batch(graph, {}); }), HasSubstr("example has 0 tensors"));
  EXPECT_THAT(refusal([&] {
                analyse_batch(graph, {torch::randn({1, 6})});
              }),
              HasSubstr("the example has 1 rows; two at least"));
  EXPECT_THAT(refusal([&] {
                analyse_batch(graph, {torch::randn({4, 3}, torch::kDouble)});
              }),
              HasSubstr("the example does not run through the graph"));
}

}  // namespace
}  // namespace pipewright
