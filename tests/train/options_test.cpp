// What a user may ask of a Trainer beside the pipeline: rates, groups, callbacks, checks, and
// batches of every shape.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "pipewright/base/cores.h"
#include "pipewright/base/error.h"
#include "tests/refusal.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Options, TheLearningRateFollowsItsSchedule) {
  Strategy strategy = strategy_of(2, 4);
  strategy.learning_rate = warm_up(2, linear_decay(4));
  Trainer trainer(make_model({}), cross_entropy(), sgd(0.1, 0), strategy);
  Sequence reference = make_model({});
  std::vector<torch::Tensor> parameters;
  for (auto& [name, parameter] : reference.named_parameters()) parameters.push_back(parameter);
  for (int step = 0; step < 6; ++step) {
    const Batch batch = make_batch(8, step, {});
    trainer.step(batch);
    plain_gradients(reference, cross_entropy(), batch, 4, 0);
    torch::optim::SGD plain(parameters,
                            0.1 * std::vector<double>{0.5, 1, 1, 0.75, 0.5, 0.25}[step]);
    plain.step();
    plain.zero_grad();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(torch::allclose(trainer.model().named_parameters()[i].second, parameters[i],
                                  1e-12, 1e-14))
          << "step " << step;
    }
  }
  EXPECT_EQ(trainer.num_updates(), 6);
}

TEST(Options, ParametersMayBeGroupedByName) {
  const auto is_bias = [](const std::string& name, const torch::Tensor&) {
    return name.ends_with(".bias");
  };
  const OptimizerFactory grouped = [&](const Parameters& parameters) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(parameters.where([&](auto& name, auto& p) { return !is_bias(name, p); }));
    groups.emplace_back(parameters.where(is_bias), std::make_unique<torch::optim::SGDOptions>(0.0));
    return std::make_unique<torch::optim::SGD>(std::move(groups), torch::optim::SGDOptions(0.1));
  };
  for (int ranks = 1; ranks <= 3; ++ranks) {
    Strategy strategy = strategy_of(ranks, 4);
    strategy.learning_rate = constant_rate();
    Trainer trainer(make_model({}), cross_entropy(), grouped, strategy);
    const Tensors before = state_of(trainer);
    trainer.step(make_batch(8, 0, {}));
    const auto after = trainer.state_dict();
    for (std::size_t i = 0; i < after.size(); ++i)
      EXPECT_EQ(after[i].second.equal(before[i]), is_bias(after[i].first, {})) << after[i].first;
  }
}

TEST(Options, CallbacksComeAfterEveryStepInOrder) {
  Trainer trainer(make_model({}), cross_entropy(), sgd(), strategy_of(2, 2));
  std::vector<std::string> calls;
  trainer.after_step([&](const StepResult& result) {
    calls.push_back("first");
    EXPECT_GT(result.loss, 0);
    EXPECT_EQ(trainer.num_steps(), 1);
  });
  trainer.after_step([&](const StepResult&) { calls.emplace_back("second"); });
  trainer.step(make_batch(8, 0, {}));
  trainer.evaluate(make_batch(8, 0, {}));
  EXPECT_THAT(calls, ElementsAre("first", "second"));
}

/// The cores that each rank of a pipeline may use, as its first layer sees them.
std::vector<std::vector<int>> cores_by_rank(int ranks, bool pin, int threads_per_rank = 1) {
  std::vector<std::vector<int>> seen(static_cast<std::size_t>(ranks));
  Sequence model;
  for (std::vector<int>& cores : seen) {
    const auto number = fmt::format("{}", &cores - seen.data());
    model.add("look" + number, [&cores](const torch::Tensor& x) {
      cores = usable_cores();
      return x;
    });
    model.add("linear" + number, torch::nn::Linear(2, 2));
  }
  Strategy strategy = strategy_of(ranks, 1);
  strategy.sizes.assign(static_cast<std::size_t>(ranks), 2);
  strategy.pin = pin;
  strategy.threads_per_rank = threads_per_rank;
  Trainer trainer(model, mean_squared_error(), sgd(), strategy);
  trainer.step({.inputs = {torch::ones({1, 2})}, .targets = {torch::ones({1, 2})}});
  return seen;
}

TEST(Options, RanksStayOnTheirShareOfTheCores) {
  const auto all = usable_cores();
  EXPECT_THAT(cores_by_rank(2, false), ElementsAre(all, all));
  const int too_many = static_cast<int>(all.size()) + 1;
  EXPECT_THAT(cores_by_rank(2, true, too_many), ElementsAre(all, all));
  const auto share = [&](int rank) {  // of a machine with one core: that one
    return all.size() < 2 ? all : share_of_cores(all, rank, 2);
  };
  EXPECT_THAT(cores_by_rank(2, true), ElementsAre(share(0), share(1)));
  EXPECT_THAT(cores_by_rank(1, true), ElementsAre(all));
  setenv(kCoresVariable, fmt::format("{}", all.back()).c_str(), 1);  // as of a launched process
  EXPECT_THAT(cores_by_rank(1, true), ElementsAre(std::vector{all.back()}));
  EXPECT_THAT(cores_by_rank(1, false), ElementsAre(all));
  unsetenv(kCoresVariable);
}

/// log of what is negative: not a number, in the forward.
Sequence model_with_nan(bool on) {
  Sequence model;
  torch::manual_seed(1);
  model.add("fc1", torch::nn::Linear(4, 4)).add("fc2", torch::nn::Linear(4, 4));
  model.add("bad", [on](torch::Tensor x) { return on ? torch::log(x - 100) : x; });
  model.add("fc3", torch::nn::Linear(4, 4));
  return model;
}

TEST(Options, ALossThatIsNoNumberIsAnErrorAndChangesNothing) {
  for (const int merge_steps : {1, 2}) {
    Strategy strategy = strategy_of(2, 2);
    strategy.merge_steps = merge_steps;
    Trainer trainer(model_with_nan(true), mean_squared_error(), sgd(), strategy);
    const Tensors before = state_of(trainer);
    const Batch batch{{torch::randn({4, 4})}, {torch::randn({4, 4})}};
    EXPECT_THAT(refusal([&] { trainer.step(batch); }),
                AllOf(HasSubstr("the loss of micro-batch 0 is"), HasSubstr("nan"),
                      HasSubstr("set check_finite")));
    EXPECT_THAT(different(trainer, before), IsEmpty());
    EXPECT_THAT(refusal([&] { trainer.gradients(batch); }), HasSubstr("nan"));
    EXPECT_EQ(trainer.num_steps(), 0);
  }
}

TEST(Options, TheFirstLayerThatIsNotFiniteIsNamedOnRequest) {
  const Batch batch{{torch::randn({4, 4})}, {torch::randn({4, 4})}};
  Strategy strategy = strategy_of(2, 2);
  strategy.check_finite = true;
  Trainer trainer(model_with_nan(true), mean_squared_error(), sgd(), strategy);
  EXPECT_THAT(
      refusal([&] { trainer.step(batch); }),
      AllOf(HasSubstr("stage 1, 1F0"), HasSubstr("the forward of layer 'bad' made 8 of 8")));
  // A square root at zero: finite forwards, an infinite gradient.
  Sequence root;
  root.add("fc1", torch::nn::Linear(4, 4));
  root.add("zero", [](torch::Tensor x) { return x * 0; });
  root.add("root", [](torch::Tensor x) { return torch::sqrt(x); });
  root.add("fc2", torch::nn::Linear(4, 4));
  Trainer backwards(root, mean_squared_error(), sgd(), strategy);
  EXPECT_THAT(refusal([&] { backwards.step(batch); }),
              AllOf(HasSubstr("backward"), HasSubstr("the backward of layer 'root' made")));
  Trainer healthy(model_with_nan(false), mean_squared_error(), sgd(), strategy);
  EXPECT_TRUE(healthy.step(batch).updated);
}

TEST(Options, RunningOutOfMemorySaysWhereAndWhatHelps) {
  bool greedy = true;
  Sequence model = make_model({});
  model.add("greedy", [&](torch::Tensor x) {
    if (greedy) torch::empty({std::int64_t{1} << 50});
    return x;
  });
  Strategy strategy = strategy_of(2, 4, "gpipe");
  Trainer trainer(model, cross_entropy(), sgd(), strategy);
  try {
    trainer.step(make_batch(8, 0, {}));
    FAIL() << "2^52 bytes are not to be had";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank 1, stage 1, 1F0 (forward): out of memory"), HasSubstr("KiB"),
                      HasSubstr("recompute = kAll"), HasSubstr("schedule = 1f1b"),
                      HasSubstr("micro_batches above 4")));
  }
  greedy = false;
  EXPECT_TRUE(trainer.step(make_batch(8, 0, {})).updated);
}

/// Two inputs in, two outputs out: attention-like, with a mask that every micro-batch gets whole.
struct PairImpl : torch::nn::Module {
  PairImpl()
      : left(register_module("left", torch::nn::Linear(3, 3))),
        right(register_module("right", torch::nn::Linear(3, 3))) {
    to(torch::kFloat64);
  }
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(torch::Tensor a, torch::Tensor b,
                                                                  torch::Tensor mask) {
    return {left(a) * mask, torch::tanh(right(b) + a), mask};
  }
  torch::nn::Linear left, right;
};
TORCH_MODULE(Pair);

TEST(Options, SeveralInputsSharedOnesAndSeveralOutputs) {
  const auto make = [] {
    torch::manual_seed(2);
    Sequence model;
    for (int i = 0; i < 4; ++i) model.add("pair" + std::to_string(i), Pair());
    return model;
  };
  Loss loss;
  loss.value = [](const Tensors& outputs, const Tensors& targets) -> LossValue {
    return {(outputs[0] - targets[0]).pow(2).sum() + (outputs[1] - targets[1]).abs().sum(),
            static_cast<double>(targets[0].size(0))};
  };
  const auto noise = [](int rows) { return torch::randn({rows, 3}, torch::kFloat64); };
  const auto mask = torch::tensor({1.0, 0.0, 2.0}, torch::kFloat64);
  const Batch batch{{noise(7), noise(7), mask}, {noise(7), noise(7)}, {0, 0, 1}};
  const Sequence reference = make();
  Tensors x = batch.inputs;
  for (const Layer& layer : reference.layers()) x = layer.forward(x);
  (loss.value(x, batch.targets).sum / 7).backward();
  for (int ranks = 1; ranks <= 4; ++ranks) {
    Trainer trainer(make(), loss, sgd(), strategy_of(ranks, 3));
    trainer.gradients(batch);
    EXPECT_LE(gradient_difference(trainer.model(), reference), 1e-10) << "K=" << ranks;
    const Tensors outputs = trainer.predict(batch.inputs, batch.shared_inputs);
    EXPECT_TRUE(torch::allclose(outputs[1], x[1], 1e-12, 1e-12));
  }
}

/// Cuts each row's padding: micro-batches of other rows have other widths.
TEST(Options, ShapesMayChangeFromMicroBatchToMicroBatch) {
  const auto make = [] {
    torch::manual_seed(4);
    Sequence model;
    model.add("trim", [](torch::Tensor x) {
      const auto longest = x.ne(0).sum(1).max().item<std::int64_t>();
      return x.slice(1, 0, longest);
    });
    model.add("embed", torch::nn::Embedding(9, 5));
    model.add("fc1", torch::nn::Linear(5, 5)).add("tanh", torch::nn::Tanh());
    model.add("mean", [](torch::Tensor x) { return x.sum(1); });
    model.add("fc2", torch::nn::Linear(5, 3));
    for (const Layer& layer : model.layers()) {
      if (layer.module) layer.module->to(torch::kFloat64);
    }
    return model;
  };
  auto rows = torch::randint(1, 9, {6, 8});
  for (int row = 0; row < 6; ++row) rows[row].slice(0, 8 - row) = 0;
  const Batch batch{{rows}, {torch::randint(3, {6})}};
  const Sequence reference = make();
  plain_gradients(reference, cross_entropy(), batch, 3, 0);
  for (int ranks = 1; ranks <= 3; ++ranks) {
    Trainer trainer(make(), cross_entropy(), sgd(), strategy_of(ranks, 3));
    trainer.gradients(batch);
    EXPECT_LE(gradient_difference(trainer.model(), reference), 1e-10) << "K=" << ranks;
  }
}

TEST(Options, ASlowLinkChangesNoBit) {
  Tensors right;
  for (const double bandwidth : {0.0, 1e5}) {
    Strategy strategy = strategy_of(3, 4);
    strategy.link_bandwidth = bandwidth;
    Trainer trainer(make_model({}), cross_entropy(), sgd(), strategy);
    for (int step = 0; step < 2; ++step) trainer.step(make_batch(8, step, {}));
    const Tensors state = state_of(trainer);
    if (bandwidth == 0) {
      right = state;
      continue;
    }
    for (std::size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(state[i].equal(right[i])) << i;
  }
}

TEST(Options, ALinkThatIsNoneIsRefused) {
  Strategy strategy = strategy_of(2, 4);
  strategy.link_bandwidth = -1;
  EXPECT_THAT(refusal([&] { Trainer trainer(make_model({}), cross_entropy(), sgd(), strategy); }),
              AllOf(HasSubstr("link_bandwidth = -1"), HasSubstr("bytes a second")));
  strategy.link_bandwidth = 1e9;
  strategy.transport = "gloo";
  EXPECT_THAT(refusal([&] { Trainer trainer(make_model({}), cross_entropy(), sgd(), strategy); }),
              AllOf(HasSubstr("link_bandwidth"), HasSubstr("threads")));
}

TEST(Options, DevicesThatAreNotThereAreRefused) {
  const auto with = [](std::vector<std::string> devices) {
    Strategy strategy = strategy_of(2, 2);
    strategy.devices = std::move(devices);
    return refusal([&] { Trainer trainer(make_model({}), cross_entropy(), sgd(), strategy); });
  };
  EXPECT_THAT(with({"gpu"}), HasSubstr("'gpu' is no device; use cpu or cuda:N"));
  EXPECT_THAT(with({"cuda:99"}), HasSubstr("there is no device 'cuda:99'"));
  EXPECT_THAT(with({"meta"}), HasSubstr("'meta' is not supported"));
  EXPECT_THAT(with({"cpu", "cpu", "cpu"}),
              HasSubstr("must be one, or one for each of the 2 ranks"));
  EXPECT_THAT(with({"cpu", "cpu"}), testing::Eq("accepted"));
}

}  // namespace
}  // namespace pipewright
