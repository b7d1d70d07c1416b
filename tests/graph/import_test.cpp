#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>

#include <filesystem>
#include <fstream>

#include "tests/graph/models.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string temporary(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / ("pipewright_graph_" + name)).string();
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Import : public testing::TestWithParam<std::string> {};

TEST_P(Import, ForwardIsTheModulesBitForBit) {
  const Graph graph = load_model(GetParam());
  const auto module = torch::jit::load(model_path(GetParam()));
  const Tensors inputs = make_inputs(GetParam(), 5);
  for (int run = 0; run < 3; ++run) {
    const Tensors expected = call_module(module, inputs);
    const Tensors got = graph.forward(inputs);
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_EQ(graph.num_outputs(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i]));
  }
}

TEST_P(Import, NoModuleIsLeftAndEveryParameterHasItsName) {
  const Graph graph = load_model(GetParam());
  std::vector<std::string> names;
  for (const auto& parameter : graph.module().named_parameters()) names.push_back(parameter.name);
  for (const GraphAttribute& parameter : graph.parameters()) {
    EXPECT_THAT(names, testing::Contains(parameter.name));
    EXPECT_TRUE(parameter.tensor.requires_grad());
  }
  EXPECT_THAT(graph.unused_parameters(), IsEmpty());
  for (const torch::jit::Node* node : graph.ir()->nodes()) {
    EXPECT_NE(node->kind(), c10::prim::GetAttr);
    EXPECT_NE(node->kind(), c10::prim::CallMethod);
  }
}

TEST_P(Import, TrainedParametersAreSavedAndReadAgain) {
  const Graph graph = load_model(GetParam());
  {
    const torch::NoGradGuard no_grad;
    for (const GraphAttribute& parameter : graph.parameters()) parameter.tensor.add_(0.125);
  }
  const std::string path = temporary(GetParam() + ".pt");
  graph.save(path);
  const Graph again = Graph::load(path);
  ASSERT_EQ(again.parameters().size(), graph.parameters().size());
  for (std::size_t i = 0; i < graph.parameters().size(); ++i) {
    EXPECT_EQ(again.parameters()[i].name, graph.parameters()[i].name);
    EXPECT_TRUE(again.parameters()[i].tensor.equal(graph.parameters()[i].tensor));
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(All, Import, testing::ValuesIn(all_models()),
                         [](const auto& test) { return test.param; });

TEST(GraphImport, InputsAreNamedAsInForward) {
  EXPECT_THAT(load_model("multi_input").input_names(), ElementsAre("left", "right", "late"));
  EXPECT_THAT(load_model("unet").input_names(), ElementsAre("x"));
}

TEST(GraphImport, TiedWeightIsOneParameterWithAllItsNames) {
  const Graph graph = load_model("tied");
  std::vector<std::string> tied;
  for (const GraphAttribute& parameter : graph.parameters()) {
    if (parameter.other_names.empty()) continue;
    tied.push_back(parameter.name);
    EXPECT_THAT(parameter.other_names, ElementsAre("head.weight"));
    EXPECT_TRUE(
        graph.module().attr("head").toModule().attr("weight").toTensor().is_same(parameter.tensor));
  }
  EXPECT_THAT(tied, ElementsAre("embed.weight"));
}

TEST(GraphImport, BuffersAreNoParameters) {
  std::vector<std::string> names;
  for (const GraphAttribute& buffer : load_model("transformer").buffers())
    names.push_back(buffer.name);
  EXPECT_THAT(names, ElementsAre("mask"));
}

TEST(GraphImport, BatchNormsCountersAreTakenOutOfTheGraph) {
  for (const std::string name : {"cnn_norm", "cnn_norm_traced"}) {
    const Graph graph = load_model(name);
    ASSERT_EQ(graph.norms().size(), 2U) << name;
    const auto counter = [&](const GraphNorm& norm) {
      return graph.attributes()[norm.counter].tensor.item<std::int64_t>();
    };
    const std::int64_t before = counter(graph.norms()[0]);
    graph.forward(make_inputs(name, 3));
    for (const GraphNorm& norm : graph.norms()) {
      EXPECT_DOUBLE_EQ(norm.momentum, 0.1);
      EXPECT_EQ(counter(norm), before);
    }
    EXPECT_THAT(graph.attributes()[graph.norms()[0].running_mean].name, HasSubstr("running_mean"));
  }
}

TEST(GraphImport, ModesFollowTrain) {
  Graph graph = load_model("cnn_norm");
  const Tensors inputs = make_inputs("cnn_norm", 4);
  const auto in_training = graph.forward(inputs)[0];
  graph.train(false);
  EXPECT_FALSE(graph.forward(inputs)[0].equal(in_training));
}

TEST(GraphImport, NodesKnowTheirSourceLine) {
  const Graph graph = load_model("batch_softmax");
  std::vector<std::string> found;
  for (const torch::jit::Node* node : graph.ir()->nodes()) {
    if (node->kind() == c10::aten::softmax) found.push_back(describe(*node));
  }
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0], AllOf(HasSubstr("aten::softmax"), HasSubstr("make_models.py:")));
}

TEST(GraphImport, TracedCppModuleSharesItsParameters) {
  torch::manual_seed(3);
  torch::nn::Sequential model(torch::nn::Linear(4, 5), torch::nn::Tanh(), torch::nn::Linear(5, 2));
  const auto forward = [&](const Tensors& x) { return Tensors{model->forward(x[0]), x[0] * 2}; };
  const Graph graph = Graph::trace(*model, forward, {torch::randn({3, 4})});
  ASSERT_EQ(graph.parameters().size(), 4U);
  for (const GraphAttribute& parameter : graph.parameters())
    EXPECT_TRUE(parameter.tensor.is_same(model->named_parameters()[parameter.name]));
  const auto x = torch::randn({7, 4});
  const Tensors got = graph.forward({x});
  ASSERT_EQ(got.size(), 2U);
  EXPECT_TRUE(got[0].equal(model->forward(x)));
  EXPECT_TRUE(got[1].equal(x * 2));
}

TEST(GraphImport, RefusesWhatIsNoTorchScriptFile) {
  EXPECT_EQ(refusal([] { Graph::load("/nowhere/model.pt"); }),
            "[graph] '/nowhere/model.pt' cannot be opened; check the path");
  EXPECT_THAT(refusal([] { load_model("state_dict"); }),
              AllOf(HasSubstr("was written by torch.save"), HasSubstr("torch.jit.script")));
  const std::string path = temporary("bad.pt");
  write_file(path, "");
  EXPECT_THAT(refusal([&] { Graph::load(path); }), HasSubstr("is empty"));
  write_file(path, "weights of something");
  EXPECT_THAT(refusal([&] { Graph::load(path); }), HasSubstr("is not a TorchScript file"));
  EXPECT_THAT(refusal([] { Graph::load("/tmp"); }), HasSubstr("[graph] '/tmp'"));
  std::filesystem::remove(path);
}

TEST(GraphImport, RefusesAFileThatIsCutShortAnywhere) {
  const std::string whole = read_file(model_path("mlp"));
  const std::string path = temporary("short.pt");
  for (std::size_t part = 1; part < 8; ++part) {
    write_file(path, whole.substr(0, whole.size() * part / 8));
    EXPECT_THAT(refusal([&] { Graph::load(path); }), HasSubstr("is cut short or damaged"));
  }
  std::filesystem::remove(path);
}

torch::jit::Module defined(const std::string& source) {
  torch::jit::Module module("Model");
  module.register_parameter("weight", torch::ones({2, 2}), false);
  module.register_attribute("calls", c10::IntType::get(), 0);
  module.define(source + "\n");
  return module;
}

TEST(GraphImport, RefusesMethodsThatCannotBeFlat) {
  EXPECT_THAT(refusal([] { Graph::from(defined("def run(self, x):\n  return x"), "forward"); }),
              HasSubstr("has no method 'forward'; it has run"));
  EXPECT_THAT(
      refusal([] { Graph::from(defined("def forward(self, x):\n  self.calls = 1\n  return x")); }),
      HasSubstr("writes the attribute 'calls'"));
  EXPECT_THAT(
      refusal([] { Graph::from(defined("def forward(self, x, n: List[int]):\n  return x")); }),
      AllOf(HasSubstr("input 'n' of forward is a List[int]"), HasSubstr("takes tensors only")));
  EXPECT_THAT(refusal([] { Graph::from(defined("def forward(self, x):\n  return x.size(0)")); }),
              HasSubstr("output 0 of forward is a int"));
}

TEST(GraphImport, DefaultsStandInForInputsThatAreNoTensors) {
  const Graph graph = Graph::from(
      defined("def forward(self, x, power: int = 3):\n  return torch.mm(x, self.weight) ** power"));
  EXPECT_THAT(graph.input_names(), ElementsAre("x"));
  EXPECT_TRUE(graph.forward({torch::ones({1, 2})})[0].equal(torch::full({1, 2}, 8.0)));
}

TEST(GraphImport, OutputsOfTuplesAndListsAreOneEach) {
  const Graph graph = Graph::from(defined(
      "def forward(self, x):\n  return (x + 1, [x + 2, torch.mm(x, self.weight)], {'a': x + 3})"));
  const Tensors got = graph.forward({torch::zeros({1, 2})});
  ASSERT_EQ(got.size(), 4U);
  EXPECT_EQ(got[1][0][0].item<float>(), 2);
  EXPECT_EQ(got[3][0][0].item<float>(), 3);
}

TEST(GraphImport, RefusesAWrongNumberOfInputs) {
  EXPECT_EQ(refusal([] { load_model("multi_input").forward({torch::ones({1})}); }),
            "[graph] forward got 1 tensors, but takes 3: left, right, late");
}

TEST(GraphImport, RefusesToSaveWhereItCannot) {
  EXPECT_THAT(refusal([] { load_model("mlp").save("/nowhere/model.pt"); }),
              HasSubstr("cannot write '/nowhere/model.pt'"));
}

}  // namespace
}  // namespace pipewright
