#include "pipewright/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/exec/meeting.h"
#include "pipewright/exec/rank_runner.h"
#include "pipewright/exec/workers.h"
#include "pipewright/ir/validate.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/train/layout.h"
#include "pipewright/transport/inproc.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

/// What a call wants of a step.
enum class Mode {
  kUpdate,     // gradients and the optimizer
  kMerge,      // gradients, added to those of earlier steps
  kGradients,  // gradients, made final, for the caller
  kForward,    // no gradients
};

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("trainer", why); }

int cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

int threads_per_rank(const Strategy& strategy) {
  if (strategy.threads_per_rank > 0) return strategy.threads_per_rank;
  return std::max(1, cores() / strategy.ranks);
}

void check_strategy(const Strategy& s) {
  if (s.ranks < 1) refuse(fmt::format("ranks = {}; use 1 or more", s.ranks));
  if (s.micro_batches < 1)
    refuse(fmt::format("micro_batches = {}; use 1 or more", s.micro_batches));
  if (s.merge_steps < 1) refuse(fmt::format("merge_steps = {}; use 1 or more", s.merge_steps));
  if (!(s.clip_norm >= 0)) refuse(fmt::format("clip_norm = {}; use 0 (off) or more", s.clip_norm));
  if (!(s.deadline_seconds > 0))
    refuse(fmt::format("deadline_seconds = {}; use more than 0", s.deadline_seconds));
  if (find_schedule(s.schedule).forward_only)
    refuse(fmt::format("schedule '{}' trains nothing", s.schedule));
}

Program lowered(Program program, RecomputeMode recompute, bool update) {
  if (recompute == RecomputeMode::kAll) program = lower_recompute(program, RecomputePass::kAll);
  if (recompute == RecomputeMode::kExceptLast)
    program = lower_recompute(program, RecomputePass::kExceptLast);
  program = lower_sends(program);
  if (update) program = lower_step(program);
  validate(program);
  return program;
}

/// Puts a model into eval mode, and back as it was, module by module.
class EvalMode {
 public:
  explicit EvalMode(const Sequence& model) {
    for (const Layer& layer : model.layers()) {
      if (!layer.module) continue;
      for (const auto& module : layer.module->modules())
        modes_.emplace_back(module, module->is_training());
    }
    for (auto& [module, training] : modes_) module->train(false);
  }
  ~EvalMode() {
    // Outer modules come first; train() passes its mode on, and the inner ones then get their own
    // back.
    for (auto& [module, training] : modes_) module->train(training);
  }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

}  // namespace

struct Trainer::Impl {
  Impl(Sequence sequence, Loss loss, const OptimizerFactory& factory, Strategy s)
      : model(std::move(sequence)),
        strategy(std::move(s)),
        shared(lay_out(std::move(loss))),
        updater(shared, factory),
        transport(strategy.ranks, std::chrono::duration<double>(strategy.deadline_seconds),
                  std::chrono::microseconds(strategy.ranks <= cores() ? kSpinMicroseconds : 0)),
        meeting(strategy.ranks, std::chrono::duration<double>(strategy.deadline_seconds)),
        workers(strategy.ranks, threads_per_rank(strategy)) {
    for (int rank = 0; rank < strategy.ranks; ++rank) {
      ranks.push_back(std::make_unique<RankRunner>(shared, rank, &transport,
                                                   [this](int stage) { update(stage); }));
    }
  }

  ScheduleSpec spec(int micro_batches) const {
    return {.name = strategy.schedule,
            .ranks = strategy.ranks,
            .micro_batches = micro_batches,
            .chunks = strategy.chunks};
  }

  SharedModel lay_out(Loss loss) {
    model.check();
    if (!loss.value) refuse("the loss has no function");
    const Program program = make_schedule(spec(strategy.micro_batches));
    sizes = stage_sizes(model, strategy, program.num_stages());
    StageLayout layout;
    layout.placement = program.placement;
    layout.first_layer.push_back(0);
    for (const int size : sizes) {
      layout.first_layer.push_back(layout.first_layer.back() + static_cast<std::size_t>(size));
    }
    return share_model(model, std::move(loss), std::move(layout));
  }

  /// What the ranks run, made once for each number of micro-batches.
  const Program& program(int micro_batches, Mode mode) {
    const auto key = std::pair(micro_batches, mode);
    const auto found = programs.find(key);
    if (found != programs.end()) return found->second;
    Program made = make_schedule(spec(micro_batches));
    if (mode == Mode::kForward) {
      // The stages stay where they are: the forwards of the training program alone.
      made.forward_only = true;
      for (auto& list : made.ranks) {
        std::erase_if(list, [](Instruction i) { return i.kind() != Kind::kForward; });
      }
      made = lowered(std::move(made), RecomputeMode::kNone, false);
    } else {
      made = lowered(std::move(made), strategy.recompute, mode == Mode::kUpdate);
    }
    return programs.emplace(key, std::move(made)).first->second;
  }

  StepResult run(const Batch& batch, Mode mode) {
    const std::int64_t rows = rows_of(batch);
    const int parts = static_cast<int>(std::min<std::int64_t>(strategy.micro_batches, rows));
    StepInput input;
    input.step = num_steps;
    input.run_seed = strategy.seed;
    input.training = mode != Mode::kForward;
    input.inputs = split(batch.inputs, batch.shared_inputs, parts);
    input.targets = split(batch.targets, {}, parts);
    input.weight = expected_weight(batch, rows);
    expected = input.weight;
    StepResult result;
    result.micro_batches = parts;
    result.timeline.name = strategy.schedule;
    result.timeline.time_unit = "s";
    result.timeline.ranks.resize(ranks.size());
    const auto start = Clock::now();
    execute(program(parts, mode), input, start, &result);
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (mode != Mode::kForward) finish_mini_batch(mode);
    collect(&result);
    return result;
  }

  double expected_weight(const Batch& batch, std::int64_t rows) const {
    if (batch.targets.empty() || !shared.loss.weight) return static_cast<double>(rows);
    const double weight = shared.loss.weight(batch.targets);
    return weight > 0 ? weight : 1;
  }

  void execute(const Program& list, const StepInput& input, Clock::time_point start,
               StepResult* result) {
    try {
      workers.run(
          [&](int rank) {
            const auto r = static_cast<std::size_t>(rank);
            ranks[r]->run(list, input, start, &result->timeline.ranks[r]);
          },
          [&] {
            transport.abort();
            meeting.abort();
          });
    } catch (...) {
      abandon();
      throw;
    }
  }

  /// Forgets a step that failed, so that the next one starts clean.
  void abandon() {
    transport.reset();
    meeting.reset();
    for (auto& rank : ranks) rank->abandon();
    updater.clear_gradients();
    num_merged = 0;
  }

  /// Batch norm's statistics move once a mini-batch, whether or not the optimizer runs.
  void finish_mini_batch(Mode mode) {
    for (auto& rank : ranks) {
      for (auto& stage : rank->stages()) stage->finish_mini_batch();
    }
    if (mode == Mode::kMerge && std::abs(total_weight() - expected) > 1e-9 * expected) {
      abandon();
      refuse(
          "the loss's weight is not the number of rows; with gradient merge, set Loss::weight so "
          "that it is known "
          "before the step");
    }
    if (mode == Mode::kGradients) {
      for (auto& rank : ranks) updater.finish_gradients(stages_of(*rank), weight_correction());
    }
  }

  /// Loss and weight of the mini-batch, summed in micro-batch order.
  void collect(StepResult* result) {
    for (auto& rank : ranks) {
      for (auto& stage : rank->stages()) {
        double sum = 0;
        for (const auto& [m, value] : stage->losses()) {
          sum += value.sum.item<double>();
          result->weight += value.weight;
        }
        if (!stage->losses().empty()) result->loss = result->weight > 0 ? sum / result->weight : 0;
        if (!stage->outputs().empty()) result_outputs = std::move(stage->outputs());
        stage->clear_results();
      }
    }
    result->gradient_norm = gradient_norm;
  }

  double total_weight() const {
    double weight = 0;
    for (const auto& rank : ranks) {
      for (const auto& stage : rank->stages()) {
        for (const auto& [m, value] : stage->losses()) weight += value.weight;
      }
    }
    return weight;
  }

  /// The true weight instead of the expected one.
  double weight_correction() const {
    const double weight = total_weight();
    return weight > 0 ? expected / weight : 1;
  }

  static std::vector<int> stages_of(RankRunner& rank) {
    std::vector<int> stages;
    for (const auto& stage : rank.stages()) stages.push_back(stage->stage());
    return stages;
  }

  /// STEP of a stage, on its rank's thread.
  void update(int stage) {
    const int rank = shared.layout.rank_of(stage);
    const std::vector<int> stages = stages_of(*ranks[static_cast<std::size_t>(rank)]);
    if (stage == stages.front()) {
      // Before the rank's first STEP: the weight of the loss and the uses of tied weights are
      // complete only when all ranks have come here.
      meeting.wait();
      const double merged = strategy.merge_average ? strategy.merge_steps : 1;
      updater.finish_gradients(stages, weight_correction() / merged);
      if (strategy.clip_norm > 0) {
        const double norm = updater.clip(stages, strategy.clip_norm, &meeting);
        if (rank == 0) gradient_norm = norm;
      }
    }
    updater.step(stage);
  }

  static constexpr int kSpinMicroseconds = 2000;

  Sequence model;
  Strategy strategy;
  std::vector<int> sizes;
  SharedModel shared;
  Updater updater;
  InprocTransport transport;
  Meeting meeting;
  std::vector<std::unique_ptr<RankRunner>> ranks;
  std::map<std::pair<int, Mode>, Program> programs;
  std::int64_t num_steps = 0;
  int num_merged = 0;
  double expected = 1;       // the weight that gradients were divided by
  double gradient_norm = 0;  // written by rank 0
  std::map<int, Tensors> result_outputs;
  Workers workers;  // last: its threads use the others
};

Trainer::Trainer(Sequence model, Loss loss, const OptimizerFactory& optimizer, Strategy strategy) {
  check_strategy(strategy);
  impl_ = std::make_unique<Impl>(std::move(model), std::move(loss), optimizer, std::move(strategy));
}

Trainer::~Trainer() = default;

StepResult Trainer::step(const Batch& batch) {
  if (batch.targets.empty()) refuse("the batch has no targets");
  const bool last = impl_->num_merged + 1 == impl_->strategy.merge_steps;
  StepResult result = impl_->run(batch, last ? Mode::kUpdate : Mode::kMerge);
  result.updated = last;
  impl_->num_merged = last ? 0 : impl_->num_merged + 1;
  ++impl_->num_steps;
  return result;
}

StepResult Trainer::gradients(const Batch& batch) {
  if (batch.targets.empty()) refuse("the batch has no targets");
  StepResult result = impl_->run(batch, Mode::kGradients);
  ++impl_->num_steps;
  return result;
}

StepResult Trainer::evaluate(const Batch& batch) {
  if (batch.targets.empty()) refuse("the batch has no targets");
  const EvalMode eval(impl_->model);
  return impl_->run(batch, Mode::kForward);
}

Tensors Trainer::predict(const Tensors& inputs) {
  const EvalMode eval(impl_->model);
  impl_->run({.inputs = inputs}, Mode::kForward);
  const std::map<int, Tensors> parts = std::move(impl_->result_outputs);
  Tensors result;
  for (std::size_t i = 0; i < parts.begin()->second.size(); ++i) {
    Tensors pieces;
    for (const auto& [m, outputs] : parts) pieces.push_back(outputs[i]);
    result.push_back(torch::cat(pieces));
  }
  return result;
}

const Sequence& Trainer::model() const { return impl_->model; }
const std::vector<int>& Trainer::sizes() const { return impl_->sizes; }
std::int64_t Trainer::num_steps() const { return impl_->num_steps; }

std::vector<torch::optim::Optimizer*> Trainer::optimizers() { return impl_->updater.optimizers(); }

std::vector<std::pair<std::string, torch::Tensor>> Trainer::state_dict() const {
  auto state = impl_->model.named_parameters();
  for (auto& buffer : impl_->model.named_buffers()) state.push_back(std::move(buffer));
  return state;
}

}  // namespace pipewright
