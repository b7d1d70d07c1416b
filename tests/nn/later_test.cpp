// Layers that are made where they are needed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/error.h"
#include "pipewright/nn/outline.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(torch::Tensor table) { weight = register_parameter("weight", table); }
  torch::Tensor forward(torch::Tensor x) { return torch::matmul(x, weight.t()); }
  torch::Tensor weight;
};
TORCH_MODULE(Head);

int made = 0;

Sequence later_model(std::uint64_t seed = 1) {
  Sequence model;
  model.set_seed(seed);
  model.add_later("embed", [] {
    ++made;
    return torch::nn::Embedding(7, 4);
  });
  model.add_later("fc", [] { return torch::nn::Linear(4, 4); });
  model.add_later("act", [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); });
  model.add_later("norm", [] { return torch::nn::BatchNorm1d(4); });
  model.add_later("head", [](const Tensors& tied) { return Head(tied[0]); },
                  {.tied = {"embed.weight"}});
  return model;
}

void expect_same_bits(const Sequence& a, const Sequence& b) {
  const auto left = a.named_parameters();
  const auto right = b.named_parameters();
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].first, right[i].first);
    EXPECT_TRUE(left[i].second.equal(right[i].second)) << left[i].first;
  }
}

TEST(Later, NothingIsMadeBeforeItIsAskedFor) {
  made = 0;
  Sequence model = later_model();
  EXPECT_EQ(made, 0);
  EXPECT_TRUE(model.named_parameters().empty());
  model.build(1);
  EXPECT_EQ(made, 0);
  EXPECT_EQ(model.named_parameters().size(), 2U);
  model.build_all();
  model.build_all();
  EXPECT_EQ(made, 1);
  EXPECT_TRUE(model.layers()[2].options.in_place);  // found when it is made
}

TEST(Later, WeightsDependOnSeedAndNameAlone) {
  Sequence forwards = later_model();
  forwards.build_all();
  torch::manual_seed(99);
  const auto before = torch::rand({3});
  torch::manual_seed(99);
  Sequence backwards = later_model();
  for (std::size_t i = backwards.size(); i-- > 0;) backwards.build(i);
  EXPECT_TRUE(torch::rand({3}).equal(before));  // the caller's stream is not touched
  expect_same_bits(forwards, backwards);
  Sequence other = later_model(2);
  other.build_all();
  EXPECT_FALSE(other.named_parameters()[0].second.equal(forwards.named_parameters()[0].second));
  EXPECT_FALSE(forwards.layers()[0].module->parameters()[0].slice(0, 0, 4).equal(
      forwards.layers()[1].module->parameters()[0]));
}

TEST(Later, ATiedWeightIsOneTensorWhereBothAre) {
  Sequence model = later_model();
  model.build_all();
  EXPECT_TRUE(
      model.layers()[0].module->parameters()[0].is_same(model.layers()[4].module->parameters()[0]));
}

TEST(Later, ATiedWeightIsACopyWhereItsFirstLayerIsNot) {
  Sequence whole = later_model();
  whole.build_all();
  Sequence part = later_model();
  part.release(0);
  part.build_all();
  EXPECT_EQ(part.layers()[0].module, nullptr);
  EXPECT_TRUE(
      part.layers()[4].module->parameters()[0].equal(whole.layers()[0].module->parameters()[0]));
}

TEST(Later, TheOutlineIsThatOfTheBuiltModel) {
  const Sequence model = later_model();
  Sequence built = later_model();
  built.build_all();
  const Outline later = outline_of(model);
  const Outline there = outline_of(built);
  ASSERT_EQ(later.size(), there.size());
  for (std::size_t i = 0; i < later.size(); ++i) {
    ASSERT_EQ(later[i].size(), there[i].size());
    for (std::size_t k = 0; k < later[i].size(); ++k) {
      EXPECT_EQ(later[i][k].name, there[i][k].name);
      EXPECT_EQ(later[i][k].sizes, there[i][k].sizes);
      EXPECT_EQ(later[i][k].number, there[i][k].number);
      EXPECT_EQ(later[i][k].is_parameter, there[i][k].is_parameter);
    }
  }
  EXPECT_EQ(later[4][0].number, later[0][0].number);
  EXPECT_EQ(later[0][0].numel(), 28);
  EXPECT_EQ(later[3].size(), 5U);  // weight, bias and three buffers
}

/// Tensors that are let go must not lend their addresses to those that come after.
TEST(Later, TensorsOfManyLayersAreToldApart) {
  Sequence model;
  for (int i = 0; i < 200; ++i)
    model.add_later("fc" + std::to_string(i), [] { return torch::nn::Linear(4, 4); });
  std::set<int> numbers;
  for (const auto& layer : outline_of(model))
    for (const TensorOutline& tensor : layer) numbers.insert(tensor.number);
  EXPECT_EQ(numbers.size(), 400U);
}

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(Later, MistakesAreNamed) {
  Sequence model;
  model.add_later("fc", [] { return torch::nn::Linear(4, 4); });
  const auto head = [](const Tensors& tied) { return Head(tied[0]); };
  EXPECT_THAT(error_of([&] { model.add_later("head", head, {.tied = {"embed.weight"}}); }),
              HasSubstr("a layer is tied to 'embed.weight', but no layer before it"));
  model.add_later("head", head, {.tied = {"fc.table"}});
  EXPECT_THAT(error_of([&] { model.build_all(); }), HasSubstr("no parameter 'table'"));
  EXPECT_THAT(error_of([&] { outline_of(model); }),
              HasSubstr("layer 'head' is tied to 'fc.table', but no layer before it has such"));
  Sequence throwing;
  throwing.add_later("bad", []() -> torch::nn::Linear { throw std::runtime_error("no file"); });
  EXPECT_THAT(error_of([&] { throwing.build_all(); }),
              HasSubstr("layer 'bad' cannot be made: no file"));
  Sequence empty;
  empty.add_later("none", [] { return std::shared_ptr<torch::nn::LinearImpl>(); });
  EXPECT_THAT(error_of([&] { empty.build_all(); }), HasSubstr("its maker returned no module"));
}

TEST(Later, AnOutlineDrawsNoNumbers) {
  torch::Tensor last;
  Sequence model;
  model.add_later("fc", [&] {
    torch::nn::Linear made(4, 4);
    torch::nn::init::zeros_(made->weight);
    torch::nn::init::normal_(made->weight);
    last = made->weight;
    return made;
  });
  EXPECT_EQ(num_parameters(outline_of(model)), 20);
  EXPECT_EQ(last.abs().max().item<double>(), 0);
  model.build_all();
  EXPECT_GT(last.abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace pipewright
