// Promise 7: a resumed run continues bit for bit, whatever the number of ranks that saved it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/optim/adam.h"
#include "pipewright/torch/compat.h"
#include "tests/train/checkpoint_models.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing_checkpoint::TempFolder;

/// A user's own: heavy-ball with a count and a number a parameter, from its third step on a second
/// tensor.
struct OwnState : torch::optim::OptimizerCloneableParamState<OwnState> {
  std::int64_t count = 0;
  double largest = 0;
  bool moved = false;
  torch::Tensor velocity, late;

  void serialize(torch::serialize::OutputArchive& archive) const override {
    archive.write("count", c10::IValue(count));
    archive.write("largest", c10::IValue(largest));
    archive.write("moved", c10::IValue(moved));
    archive.write("velocity", velocity, /*is_buffer=*/true);
    if (late.defined()) archive.write("late", late, /*is_buffer=*/true);
  }
  void serialize(torch::serialize::InputArchive& archive) override {
    c10::IValue value;
    archive.read("count", value);
    count = value.toInt();
    archive.read("largest", value);
    largest = value.toDouble();
    archive.read("moved", value);
    moved = value.toBool();
    archive.read("velocity", velocity, true);
    archive.try_read("late", late, true);
  }
};

struct OwnOptions : torch::optim::OptimizerCloneableOptions<OwnOptions> {
  double lr = 1;
  double get_lr() const override { return lr; }
  void set_lr(const double rate) override { lr = rate; }
};

class OwnOptimizer : public torch::optim::Optimizer {
 public:
  explicit OwnOptimizer(std::vector<torch::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<OwnOptions>()) {}
  torch::Tensor step(LossClosure /*closure*/) override {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : param_groups()[0].params()) {
      if (!parameter.grad().defined()) continue;
      auto& slot = state()[compat::optimizer_key(parameter)];
      if (slot == nullptr) slot = std::make_unique<OwnState>();
      move(static_cast<OwnState&>(*slot), parameter);
    }
    return {};
  }

 private:
  static void move(OwnState& own, torch::Tensor& parameter) {
    if (!own.velocity.defined()) own.velocity = torch::zeros_like(parameter);
    if (++own.count == 3) own.late = torch::zeros_like(parameter);
    own.velocity.mul_(0.9).add_(parameter.grad());
    own.largest = std::max(own.largest, own.velocity.abs().max().item<double>());
    if (own.late.defined()) own.late.add_(own.velocity, own.largest);
    own.moved = true;
    parameter.sub_(own.velocity, 0.01 * static_cast<double>(own.count));
    if (own.late.defined()) parameter.sub_(own.late, 0.001);
  }
};

template <typename Made, typename Options>
OptimizerFactory factory_of(const Options& options) {
  return [options](const Parameters& parameters) {
    return std::make_unique<Made>(static_cast<std::vector<torch::Tensor>>(parameters), options);
  };
}

struct Case {
  std::string name;
  OptimizerFactory optimizer;
  torch::ScalarType type = torch::kFloat64;
  int merge_steps = 1;
  bool scale_loss = false;
  double clip_norm = 0;
  std::string schedule = "1f1b";
};

std::vector<Case> all_cases() {
  using namespace torch::optim;
  const auto own = [](const Parameters& parameters) {
    return std::make_unique<OwnOptimizer>(static_cast<std::vector<torch::Tensor>>(parameters));
  };
  return {
      {"sgd", factory_of<SGD>(SGDOptions(0.05).momentum(0.9)), torch::kFloat64, 1, false, 0.5},
      {"sgd_float", factory_of<SGD>(SGDOptions(0.05).momentum(0.9)), torch::kFloat32},
      {"plain_sgd", factory_of<SGD>(SGDOptions(0.05))},
      {"adam_merged", factory_of<Adam>(AdamOptions(1e-2)), torch::kFloat64, 2, false, 0.5},
      {"amsgrad_float_merged_scaled", factory_of<Adam>(AdamOptions(1e-2).amsgrad(true)),
       torch::kFloat32, 2, true},
      {"fused_adam", adam(AdamOptions(1e-2)), torch::kFloat32, 1, true, 0.5, "zb-h1"},
      {"adamw_merged_scaled", factory_of<AdamW>(AdamWOptions(1e-2)), torch::kFloat64, 2, true, 0.5},
      {"rmsprop", factory_of<RMSprop>(RMSpropOptions(1e-3).centered(true).momentum(0.5))},
      {"adagrad", factory_of<Adagrad>(AdagradOptions(1e-2))},
      {"own_merged", own, torch::kFloat64, 2},
  };
}

constexpr int kHalf = 3;  // of a merge of two steps, the middle
constexpr int kAll = 6;
constexpr int kMostRanks = 4;

class Continued : public testing::TestWithParam<Case> {
 protected:
  static Strategy strategy(int ranks) {
    const Case& c = GetParam();
    Strategy strategy = strategy_of(ranks, 4, c.schedule);
    strategy.merge_steps = c.merge_steps;
    strategy.scale_loss = c.scale_loss;
    strategy.loss_scaling.init_scale = 1024;
    strategy.loss_scaling.growth_interval = 2;
    strategy.clip_norm = c.clip_norm;
    strategy.learning_rate = warm_up(4, linear_decay(20));
    return strategy;
  }
  static Trainer start(int ranks) {
    return {make_model_of(kAllFeatures, GetParam().type), cross_entropy(), GetParam().optimizer,
            strategy(ranks)};
  }
};

TEST_P(Continued, BitForBitWithAnyNumberOfRanks) {
  const TempFolder dir;
  Trainer undisturbed = start(1);
  const double expected_loss = train(&undisturbed, 0, kAll);
  const Tensors expected = state_of(undisturbed);
  const auto expected_files = files_of(undisturbed.save(dir / "expected", {.background = false}));
  for (int before = 1; before <= kMostRanks; ++before) {
    const std::string saved = dir / ("saved" + std::to_string(before));
    {
      Trainer trainer = start(before);
      train(&trainer, 0, kHalf);
      trainer.save(saved, {.state = {{"next", kHalf}}});
      train(&trainer, kHalf, kAll);  // while it is being written
      trainer.wait_for_save();
      EXPECT_THAT(different(trainer, expected), IsEmpty()) << "saving has disturbed the run";
    }
    for (int after = 1; after <= kMostRanks; ++after) {
      SCOPED_TRACE(testing::Message() << "K=" << before << " then K=" << after);
      Trainer trainer(make_other_model(kAllFeatures, GetParam().type), cross_entropy(),
                      GetParam().optimizer, strategy(after));
      if (after % 2 == 0) train(&trainer, 0, 1);  // what it has of its own must go
      const Resumed resumed = trainer.resume(saved);
      ASSERT_TRUE(resumed);
      EXPECT_EQ(resumed.step, kHalf);
      EXPECT_EQ(resumed.state.at("next"), kHalf);
      EXPECT_EQ(trainer.num_steps(), kHalf);
      EXPECT_THAT(resumed.refused, IsEmpty());
      EXPECT_THAT(resumed.notes, IsEmpty());
      EXPECT_EQ(train(&trainer, kHalf, kAll), expected_loss);
      EXPECT_EQ(trainer.num_updates(), undisturbed.num_updates());
      EXPECT_THAT(different(trainer, expected), IsEmpty());
      // Optimizer state too, and what depends on the partition is in no file.
      const std::string again = dir / "again";
      EXPECT_EQ(files_of(trainer.save(again, {.background = false})), expected_files);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Continued, testing::ValuesIn(all_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(Checkpoints, OfTheMiddleOfAMergeHoldTheGradientsSoFar) {
  const TempFolder dir;
  Strategy strategy = strategy_of(2, 4);
  strategy.merge_steps = 2;
  Trainer trainer(make_model(kAllFeatures), cross_entropy(), sgd(), strategy);
  train(&trainer, 0, 1);
  const Checkpoint middle = open_checkpoint(trainer.save(dir.path(), {.background = false}));
  const TensorSet& optimizer = middle.tensors(Part::kOptimizer);
  EXPECT_TRUE(optimizer.contains("embed.weight/merged_gradient.0"));
  EXPECT_TRUE(optimizer.contains("head.weight/merged_gradient.0")) << "each use has its own";
  EXPECT_FALSE(optimizer.contains("embed.weight/momentum_buffer"));
  train(&trainer, 1, 2);
  const Checkpoint whole = open_checkpoint(trainer.save(dir.path(), {.background = false}));
  EXPECT_FALSE(whole.tensors(Part::kOptimizer).contains("embed.weight/merged_gradient.0"));
  EXPECT_TRUE(whole.tensors(Part::kOptimizer).contains("embed.weight/momentum_buffer"));
}

TEST(Checkpoints, NameTensorsByLayerAndHaveATiedWeightOnce) {
  const TempFolder dir;
  Trainer trainer(make_model({.tied = true, .batch_norm = true}), cross_entropy(), adam(),
                  strategy_of(3, 2));
  train(&trainer, 0, 1, {});
  const Checkpoint saved = open_checkpoint(trainer.save(dir.path(), {.background = false}));
  const auto names = saved.tensors(Part::kWeights).names();
  std::vector<std::string> expected;
  for (const auto& [name, tensor] : trainer.state_dict()) expected.push_back(name);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names, expected);
  EXPECT_TRUE(saved.tensors(Part::kWeights).contains("norm.num_batches_tracked"));
  EXPECT_FALSE(saved.tensors(Part::kWeights).contains("head.weight"));
  EXPECT_EQ(saved.tensors(Part::kOptimizer).find("fc1.bias/step").dtype, DType::kI64);
  EXPECT_EQ(saved.tensors(Part::kWeights).files().size(), 7) << "a file a layer that has tensors";
}

/// Buffers of every type that files have.
struct BuffersImpl : torch::nn::Module {
  explicit BuffersImpl(int value) {
    scale = register_parameter("scale", torch::full({3}, value, torch::kBFloat16));
    for (const auto type : {torch::kBool, torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32,
                            torch::kInt64, torch::kFloat16, torch::kBFloat16, torch::kFloat32}) {
      register_buffer(std::string("of_") + c10::toString(type),
                      torch::full({2, 3}, value, torch::kFloat32).to(type));
    }
    register_buffer("none", torch::empty({0, 4}));
    register_buffer("turned", torch::arange(value, value + 6).view({2, 3}).t());
  }
  torch::Tensor forward(torch::Tensor x) { return x * scale.sum().to(torch::kFloat64); }
  torch::Tensor scale;
};
TORCH_MODULE(Buffers);

TEST(Checkpoints, HoldTensorsOfEveryType) {
  const TempFolder dir;
  const auto make = [](int value) {
    Sequence model;
    model.add("embed", torch::nn::Embedding(kVocabulary, kVocabulary));
    model.layers()[0].module->to(torch::kFloat64);
    model.add("buffers", Buffers(value));
    return model;
  };
  Trainer trainer(make(1), cross_entropy(), sgd(), strategy_of(2, 1));
  train(&trainer, 0, 2);
  trainer.save(dir.path(), {.background = false});
  Trainer other(make(0), cross_entropy(), sgd(), strategy_of(1, 1));
  other.resume(dir.path());
  EXPECT_THAT(different(other, state_of(trainer)), IsEmpty());
  for (const auto& [name, tensor] : other.state_dict()) {
    if (name != "buffers.turned") continue;
    EXPECT_THAT(tensor.strides(), ElementsAre(1, 3));
  }
}

TEST(Checkpoints, GoOnWithTheirSeed) {
  const TempFolder dir;
  const Features f = {.dropout = true};
  Strategy strategy = strategy_of(2, 2);
  strategy.seed = 77;
  Trainer trainer(make_model(f), cross_entropy(), sgd(), strategy);
  train(&trainer, 0, 2, f);
  trainer.save(dir.path());
  const double loss = train(&trainer, 2, 3, f);
  trainer.wait_for_save();
  Trainer other(make_model(f), cross_entropy(), sgd(), strategy_of(1, 2));
  const Resumed resumed = other.resume(dir.path());
  EXPECT_THAT(resumed.notes,
              ElementsAre("the run goes on with its own seed, 77; seed = 1 is not used"));
  EXPECT_EQ(train(&other, 2, 3, f), loss);
}

}  // namespace
}  // namespace pipewright
