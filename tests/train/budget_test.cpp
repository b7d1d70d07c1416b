// A planned budget is kept by the measured peak, and used where it helps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "pipewright/models/bert.h"
#include "pipewright/plan/search.h"
#include "pipewright/plan/stage_work.h"
#include "pipewright/profile/measure.h"
#include "pipewright/recompute/modes.h"
#include "pipewright/schedule/schedule.h"
#include "tests/refusal.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

constexpr int kMicroBatches = 4;

/// A model, its loss and its batches.
struct Subject {
  std::string name;
  int rows;  // of a micro-batch: enough that activations outweigh parameters
  Sequence (*make)();
  Loss (*loss)();
  Batch (*batch)(int rows);
};

constexpr int kDim = 64;
constexpr int kTokens = 32;

Sequence transformer() {
  Sequence model;
  for (int i = 0; i < 12; ++i) model.add("block" + std::to_string(i), Block(kDim));
  return model;
}

/// Layers of very different width.
Sequence skewed() {
  Sequence model;
  const std::vector<int> widths = {kDim, 256, 64, 64, 384, 32, 128, 64, 64, 192};
  for (std::size_t i = 0; i < 3 * widths.size(); ++i) {
    const int from = widths[i % widths.size()];
    const int to = widths[(i + 1) % widths.size()];
    model.add("fc" + std::to_string(i), torch::nn::Linear(from, to));
    model.add("tanh" + std::to_string(i), torch::nn::Tanh());
  }
  return model;
}

Batch noise(int rows) {
  const std::vector<std::int64_t> shape = {rows, kTokens, kDim};
  return {{torch::randn(shape)}, {torch::randn(shape)}};
}

struct ResidualImpl : torch::nn::Module {
  ResidualImpl(int from, int to, int stride) {
    const auto conv = [](int in, int out, int kernel, int step) {
      return torch::nn::Conv2d(
          torch::nn::Conv2dOptions(in, out, kernel).stride(step).padding(kernel / 2).bias(false));
    };
    body = register_module(
        "body",
        torch::nn::Sequential(conv(from, to, 3, stride), torch::nn::BatchNorm2d(to),
                              torch::nn::ReLU(), conv(to, to, 3, 1), torch::nn::BatchNorm2d(to)));
    if (from != to || stride != 1)
      shortcut = register_module(
          "shortcut", torch::nn::Sequential(conv(from, to, 1, stride), torch::nn::BatchNorm2d(to)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(body->forward(x) + (shortcut ? shortcut->forward(x) : x));
  }
  torch::nn::Sequential body, shortcut{nullptr};
};
TORCH_MODULE(Residual);

/// Activations that shrink from layer to layer as parameters grow.
Sequence resnet() {
  Sequence model;
  model.add("stem", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
  const int widths[] = {8, 8, 8, 16, 16, 16, 32, 32, 32};
  int from = 8;
  for (int i = 0; i < 9; ++i) {
    model.add("block" + std::to_string(i), Residual(from, widths[i], widths[i] == from ? 1 : 2));
    from = widths[i];
  }
  model.add("pool", torch::nn::AdaptiveAvgPool2d(1));
  model.add("flat", torch::nn::Flatten());
  model.add("head", torch::nn::Linear(32, 10));
  return model;
}

Batch images(int rows) { return {{torch::randn({rows, 3, 16, 16})}, {torch::randint(10, {rows})}}; }

/// A skip from end to end, a tied weight, dropout.
Sequence bert() {
  return make_bert({.layers = 5, .dim = 64, .heads = 4, .seq = kTokens, .vocab = 50});
}

Batch sentences(int rows) {
  return {{torch::randint(50, {rows, kTokens}), torch::randint(kTokens, {rows, 5})},
          {torch::randint(50, {rows, 5})}};
}

const Subject kSubjects[] = {
    {"transformer", 8, transformer, mean_squared_error, noise},
    {"skewed", 32, skewed, mean_squared_error, noise},
    {"resnet", 16, resnet, [] { return cross_entropy(); }, images},
    {"bert", 8, bert, [] { return cross_entropy(); }, sentences},
};

class Budget : public testing::TestWithParam<std::tuple<Subject, std::string, Precision>> {
 protected:
  void SetUp() override {
    if (on_gpu() && !torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
    // Some of a GPU's fastest kernels add up in no fixed order: two plain runs differ, too.
    at::globalContext().setDeterministicAlgorithms(on_gpu(), /*warn_only=*/true);
    at::globalContext().setDeterministicCuDNN(on_gpu());
  }

  void TearDown() override {
    at::globalContext().setDeterministicAlgorithms(false, false);
    at::globalContext().setDeterministicCuDNN(false);
  }

  static const Subject& subject() { return std::get<0>(GetParam()); }
  static torch::Device device() { return torch::Device(std::get<1>(GetParam())); }
  static bool on_gpu() { return device().is_cuda(); }
  /// A GPU's allocations are multiples of 512 bytes: larger ones, so that this is little.
  static int rows() { return on_gpu() ? 16 * subject().rows : subject().rows; }

  static Sequence make() {
    torch::manual_seed(1);
    Sequence model = subject().make();
    move_to(model, device());
    return model;
  }
  static Batch batch(int rows) {
    torch::manual_seed(3);
    Batch made = subject().batch(rows);
    for (auto* tensors : {&made.inputs, &made.targets}) {
      for (auto& tensor : *tensors) tensor = tensor.to(device());
    }
    return made;
  }
  static Profile profile() {
    const Batch one = batch(rows());
    MeasureOptions options;
    options.repeats = 2;
    options.warm_up = 1;
    options.precision = std::get<2>(GetParam());
    options.optimizer = sgd(0.01, 0);
    Profile measured = measure_profile(make(), subject().loss(), one.inputs, one.targets, options);
    // Bytes are the same every time, times are not, and the plans with them: these are.
    for (LayerCost& layer : measured.layers) {
      layer.forward_seconds = 1e-9 * static_cast<double>(layer.saved_bytes + 1);
      layer.backward_seconds = 2 * layer.forward_seconds;
    }
    return measured;
  }
  static std::unique_ptr<Trainer> trainer(const Strategy& strategy) {
    return std::make_unique<Trainer>(make(), subject().loss(), sgd(0.01, 0), strategy);
  }
  /// By rank, over some steps.
  static std::vector<std::int64_t> peaks(Trainer* trainer) {
    std::vector<std::int64_t> most;
    for (int step = 0; step < 2; ++step) {
      const StepResult result = trainer->step(batch(kMicroBatches * rows()));
      most.resize(result.peak_bytes.size());
      for (std::size_t rank = 0; rank < most.size(); ++rank)
        most[rank] = std::max(most[rank], result.peak_bytes[rank]);
    }
    return most;
  }
  /// What was planned for a budget, with its predictions.
  static Plan planned(const Strategy& strategy, const std::vector<int>& sizes) {
    const BudgetPlan budget =
        BudgetPlanner(strategy.profile).plan(sizes, program_of(strategy), strategy.memory_budget);
    Plan plan;
    plan.ranks = strategy.ranks;
    plan.global_batch = kMicroBatches * rows();
    plan.micro_batches = kMicroBatches;
    plan.micro_batch_size = rows();
    plan.sizes = sizes;
    plan.operations = budget.operations;
    plan.offload = budget.offload;
    return predict(std::span(&strategy.profile, 1), plan);
  }
  static Program program_of(const Strategy& strategy) {
    return make_schedule(
        {.name = strategy.schedule, .ranks = strategy.ranks, .micro_batches = kMicroBatches});
  }
  /// What a plan counts at a stage and a step need not show: inputs and a gradient that come early,
  /// if they do; a gradient that waits to be added, if it does;
  /// and, since here is one memory, what others pay for: the caller for the batch, the next stage
  /// for what it got.
  static std::int64_t of_others(const Strategy& strategy, const Plan& plan, std::size_t stage) {
    const Program program = program_of(strategy);
    const auto& layers = strategy.profile.layers;
    const LayerRange range = layer_ranges(plan.sizes)[stage];
    std::int64_t shared = stage == 0 ? strategy.profile.input_bytes : 0;
    std::int64_t early_gradient = 0;
    if (stage + 1 < plan.sizes.size()) {
      early_gradient = layers[range.last - 1].output_bytes;
      shared += early_gradient;
    }
    const int early = early_inputs(program, static_cast<int>(stage));
    std::int64_t waiting = 0;
    for (std::size_t i = range.first; i < range.last; ++i)
      waiting = std::max(waiting, layers[i].gradient_bytes);
    return stage_load(program, static_cast<int>(stage)).in_flight * shared + waiting +
           early_gradient + (stage == 0 ? 0 : early * layers[range.first - 1].output_bytes);
  }
};

TEST_P(Budget, IsKeptByTheMeasuredPeakAndChangesNoBit) {
  const Profile measured = profile();
  for (int ranks = 1; ranks <= (on_gpu() ? 2 : 3); ++ranks) {
    Strategy strategy = strategy_of(ranks, kMicroBatches);
    strategy.precision = std::get<2>(GetParam());
    const auto free = trainer(strategy);
    const std::vector<std::int64_t> all = peaks(free.get());
    const std::int64_t most = *std::max_element(all.begin(), all.end());
    const Tensors expected = state_of(*free);
    strategy.recompute = RecomputeMode::kBudget;
    strategy.profile = measured;
    int tried = 0;
    for (const double share : {1.2, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3}) {
      strategy.memory_budget = static_cast<std::int64_t>(share * static_cast<double>(most));
      SCOPED_TRACE(testing::Message() << "K=" << ranks << " share=" << share);
      std::unique_ptr<Trainer> bounded;
      const std::string why = refusal([&] { bounded = trainer(strategy); });
      if (bounded == nullptr) {
        EXPECT_THAT(why, HasSubstr("too little for rank"));
        continue;
      }
      ++tried;
      const std::vector<std::int64_t> bytes = peaks(bounded.get());
      EXPECT_THAT(different(*bounded, expected), testing::IsEmpty());
      const Plan plan = planned(strategy, bounded->sizes());
      for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
        EXPECT_LE(bytes[rank], strategy.memory_budget);
        EXPECT_LE(bytes[rank], plan.peak_bytes[rank]) << "rank " << rank << ": " << to_json(plan);
        const bool more_would_help =
            plan.operations[rank].size() > 2 * static_cast<std::size_t>(plan.sizes[rank]);
        if (!more_would_help) continue;
        // No faster plan was predicted to fit; a prediction far above what happens would have left
        // out one that does.
        EXPECT_GE(static_cast<double>(bytes[rank] + of_others(strategy, plan, rank)),
                  0.9 * static_cast<double>(plan.peak_bytes[rank]))
            << "rank " << rank;
      }
    }
    EXPECT_GE(tried, 3) << "K=" << ranks;
  }
}

const auto kName = [](const auto& test) {
  const auto& [subject, device, precision] = test.param;
  return subject.name + "_" + device + (precision == Precision::kFull ? "" : "_bf16");
};
INSTANTIATE_TEST_SUITE_P(Cpu, Budget,
                         testing::Combine(testing::ValuesIn(kSubjects), testing::Values("cpu"),
                                          testing::Values(Precision::kFull)),
                         kName);
INSTANTIATE_TEST_SUITE_P(Gpu, Budget,
                         testing::Combine(testing::ValuesIn(kSubjects), testing::Values("cuda"),
                                          testing::Values(Precision::kFull, Precision::kBf16)),
                         kName);

class LateGradient : public torch::autograd::Function<LateGradient> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                               const torch::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* /*context*/,
                                               const torch::autograd::tensor_list& gradients) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return gradients;
  }
};

/// While the first stage's backward waits, the second does all that it can, and its next gradient
/// comes.
TEST(BudgetMode, CountsTheGradientsOfARankThatIsAhead) {
  const auto make = [] {
    torch::manual_seed(1);
    Sequence model;
    model.add("wide", torch::nn::Linear(4, 4 * kDim));
    model.add("saves", torch::nn::Tanh());
    model.add("saves_more", torch::nn::Tanh());
    model.add("late", [](torch::Tensor x) { return LateGradient::apply(x); });
    model.add("last", torch::nn::Linear(4 * kDim, 4));
    return model;
  };
  const auto narrow = [](int rows) -> Batch {
    const auto x = torch::ones({rows, kTokens, 4});
    return {{x}, {x}};
  };
  const Batch one = narrow(8);
  Strategy strategy = strategy_of(2, 4);
  strategy.sizes = {4, 1};
  strategy.recompute = RecomputeMode::kAll;
  const Profile profile = measure_profile(make(), mean_squared_error(), one.inputs, one.targets,
                                          {.repeats = 1, .optimizer = sgd(0.01, 0)});
  Plan plan;
  plan.ranks = 2;
  plan.global_batch = 32;
  plan.micro_batches = 4;
  plan.micro_batch_size = 8;
  plan.sizes = strategy.sizes;
  plan.operations = {keep_checkpoints(4, {1}, false), keep_checkpoints(1, {1}, false)};
  plan = predict(std::span(&profile, 1), plan);
  Trainer trainer(make(), mean_squared_error(), sgd(0.01, 0), strategy);
  for (int step = 0; step < 2; ++step) {
    const StepResult result = trainer.step(narrow(32));
    for (std::size_t rank = 0; rank < 2; ++rank)
      EXPECT_LE(result.peak_bytes[rank], plan.peak_bytes[rank]) << "rank " << rank;
  }
}

TEST(BudgetMode, SaysWhatIsMissing) {
  Strategy strategy = strategy_of(2, 4);
  strategy.recompute = RecomputeMode::kBudget;
  const auto why = [&] {
    return refusal([&] { Trainer trainer(transformer(), mean_squared_error(), sgd(), strategy); });
  };
  EXPECT_THAT(why(), HasSubstr("memory_budget = 0; recompute = kBudget needs"));
  strategy.memory_budget = 1 << 20;
  EXPECT_THAT(why(), HasSubstr("the profile has 0 layers and the model 12"));
  const Batch one = noise(8);
  strategy.profile =
      measure_profile(transformer(), mean_squared_error(), one.inputs, one.targets, {.repeats = 1});
  EXPECT_THAT(why(), testing::AllOf(HasSubstr("memory_budget = 1 MiB is too little for rank 0"),
                                    HasSubstr("would do with")));
  strategy.offload = true;
  EXPECT_THAT(why(), HasSubstr("stage 0 is there already"));
  strategy.recompute = RecomputeMode::kNone;
  EXPECT_THAT(why(), HasSubstr("choose a recompute mode with it"));
}

/// A plan's file says all that a run needs.
TEST(PlannedMode, RunsAPlanFromItsFile) {
  torch::manual_seed(1);
  const Batch one = noise(8);
  const Profile profile =
      measure_profile(transformer(), mean_squared_error(), one.inputs, one.targets, {.repeats = 1});
  PlanRequest request;
  request.ranks = 2;
  request.global_batch = 32;
  request.schedules = {"1f1b", "zb-h1"};
  request.memory_bytes = std::int64_t{3} << 20;
  const PlanSearch found = search_plans(std::span(&profile, 1), request);
  Tensors expected;
  int run = 0;
  for (const Plan& plan : found.plans) {
    if (plan.operations.empty() || plan.micro_batches != 4) continue;
    ++run;
    const Strategy strategy = pipewright::strategy_of(parse_plan(to_json(plan), "test"));
    torch::manual_seed(1);
    Trainer trainer(transformer(), mean_squared_error(), sgd(0.01, 0), strategy);
    EXPECT_EQ(trainer.sizes(), plan.sizes);
    torch::manual_seed(3);
    const StepResult result = trainer.step(noise(32));
    for (const std::int64_t bytes : result.peak_bytes) EXPECT_LE(bytes, request.memory_bytes);
    if (expected.empty()) expected = state_of(trainer);
    EXPECT_THAT(different(trainer, expected), testing::IsEmpty()) << plan.schedule;
  }
  EXPECT_GE(run, 1);
  Strategy strategy = strategy_of(3, 4);
  strategy.recompute = RecomputeMode::kPlanned;
  EXPECT_THAT(
      refusal([&] { Trainer trainer(transformer(), mean_squared_error(), sgd(), strategy); }),
      HasSubstr("the plan's operations are of 0 stages"));
}

}  // namespace
}  // namespace pipewright
