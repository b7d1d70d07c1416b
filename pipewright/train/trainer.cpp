#include "pipewright/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <unordered_set>

#include "pipewright/base/error.h"
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

/// The rows of a batch; every tensor that is split must have as many.
std::int64_t rows_of(const Batch& batch) {
  if (batch.inputs.empty()) refuse("the batch has no inputs");
  std::int64_t rows = -1;
  const auto look = [&](const torch::Tensor& tensor, const char* what, std::size_t index) {
    if (!tensor.defined() || tensor.dim() == 0)
      refuse(fmt::format("{} {} has no dimension to split", what, index));
    if (rows < 0) rows = tensor.size(0);
    if (tensor.size(0) != rows) {
      refuse(fmt::format(
          "{} {} has {} rows, others have {}; mark an input as shared if it is not to be split",
          what, index, tensor.size(0), rows));
    }
  };
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    const bool shared = i < batch.shared_inputs.size() && batch.shared_inputs[i] != 0;
    if (!shared) look(batch.inputs[i], "input", i);
  }
  for (std::size_t i = 0; i < batch.targets.size(); ++i) look(batch.targets[i], "target", i);
  if (rows < 0) refuse("all inputs are shared; there is nothing to split");
  if (rows == 0) refuse("the batch is empty: 0 rows");
  return rows;
}

/// Splits differ by at most one row.
std::vector<Tensors> split(const Tensors& tensors, const std::vector<char>& shared, int parts) {
  std::vector<Tensors> result(static_cast<std::size_t>(parts));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i < shared.size() && shared[i] != 0) {
      for (auto& part : result) part.push_back(tensors[i]);
      continue;
    }
    const auto pieces = tensors[i].tensor_split(parts, 0);
    for (std::size_t m = 0; m < result.size(); ++m) result[m].push_back(pieces[m]);
  }
  return result;
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

/// All ranks meet here before an update that needs something of every stage.
class Meeting {
 public:
  Meeting(int num_ranks, std::chrono::duration<double> deadline)
      : num_ranks_(num_ranks), deadline_(deadline) {}

  void wait() {
    std::unique_lock lock(mutex_);
    const auto generation = generation_;
    if (++num_waiting_ == num_ranks_) {
      num_waiting_ = 0;
      ++generation_;
      met_.notify_all();
      return;
    }
    const bool there =
        met_.wait_for(lock, deadline_, [&] { return generation_ != generation || aborted_; });
    if (!there)
      throw TransportError("trainer",
                           fmt::format("ranks did not meet within {} s", deadline_.count()));
    if (aborted_ && generation_ == generation)
      throw TransportError("trainer", "another rank failed");
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    met_.notify_all();
  }

  void reset() {
    const std::lock_guard lock(mutex_);
    aborted_ = false;
    num_waiting_ = 0;
  }

 private:
  int num_ranks_;
  std::chrono::duration<double> deadline_;
  std::mutex mutex_;
  std::condition_variable met_;
  int num_waiting_ = 0;
  std::uint64_t generation_ = 0;
  bool aborted_ = false;
};

}  // namespace

struct Trainer::Impl {
  Impl(Sequence sequence, Loss loss, OptimizerFactory factory, Strategy s)
      : model(std::move(sequence)),
        strategy(std::move(s)),
        workers(strategy.ranks, threads_per_rank(strategy)),
        transport(strategy.ranks, std::chrono::duration<double>(strategy.deadline_seconds),
                  std::chrono::microseconds(strategy.ranks <= cores() ? 2000 : 0)),
        meeting(strategy.ranks, std::chrono::duration<double>(strategy.deadline_seconds)) {
    model.check();
    if (!loss.value) refuse("the loss has no function");
    const Program program = make_schedule(spec(strategy.micro_batches));
    sizes = stage_sizes(model, strategy, program.num_stages());
    StageLayout layout;
    layout.placement = program.placement;
    layout.first_layer.push_back(0);
    for (const int size : sizes)
      layout.first_layer.push_back(layout.first_layer.back() + static_cast<std::size_t>(size));
    shared = share_model(model, std::move(loss), std::move(layout));
    for (int rank = 0; rank < strategy.ranks; ++rank) {
      ranks.push_back(std::make_unique<RankRunner>(shared, rank, &transport,
                                                   [this](int stage) { update(stage); }));
    }
    own_parameters(factory);
  }

  ScheduleSpec spec(int micro_batches) const {
    return {.name = strategy.schedule,
            .ranks = strategy.ranks,
            .micro_batches = micro_batches,
            .chunks = strategy.chunks};
  }

  /// A stage owns the parameters that it uses first.
  void own_parameters(const OptimizerFactory& factory) {
    std::unordered_set<const void*> seen;
    stage_parameters.resize(sizes.size());
    for (std::size_t i = 0; i < model.size(); ++i) {
      if (!model.layers()[i].module) continue;
      for (const auto& parameter : model.layers()[i].module->parameters()) {
        if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second)
          continue;
        stage_parameters[static_cast<std::size_t>(shared.layout.stage_of(i))].push_back(parameter);
      }
    }
    for (const auto& parameters : stage_parameters) {
      optimizers.push_back(parameters.empty() || !factory ? nullptr : factory(parameters));
      if (dynamic_cast<torch::optim::LBFGS*>(optimizers.back().get()) != nullptr) {
        refuse(
            "LBFGS calls the model itself and cannot run over a pipeline; use another optimizer");
      }
    }
    squared_norms.resize(stage_parameters.size());
  }

  const Program& program(int micro_batches, bool with_update, bool forward_only) {
    const auto key = std::tuple(micro_batches, with_update, forward_only);
    const auto found = programs.find(key);
    if (found != programs.end()) return found->second;
    ScheduleSpec wanted = spec(micro_batches);
    Program made = make_schedule(wanted);
    if (forward_only) {
      // The stages stay where they are: only the forwards of the training program.
      made.forward_only = true;
      for (auto& list : made.ranks)
        std::erase_if(list, [](Instruction i) { return i.kind() != Kind::kForward; });
      made = lowered(std::move(made), RecomputeMode::kNone, false);
    } else {
      made = lowered(std::move(made), strategy.recompute, with_update);
    }
    return programs.emplace(key, std::move(made)).first->second;
  }

  StepResult run(const Batch& batch, bool training, bool with_update, bool forward_only) {
    const std::int64_t rows = rows_of(batch);
    const int parts = static_cast<int>(std::min<std::int64_t>(strategy.micro_batches, rows));
    StepInput input;
    input.step = num_steps;
    input.run_seed = strategy.seed;
    input.training = training;
    input.inputs = split(batch.inputs, batch.shared_inputs, parts);
    input.targets = split(batch.targets, {}, parts);
    input.weight = expected_weight(batch, rows);
    expected = input.weight;
    const Program& list = program(parts, with_update, forward_only);
    StepResult result;
    result.micro_batches = parts;
    result.timeline.name = strategy.schedule;
    result.timeline.time_unit = "s";
    result.timeline.ranks.resize(ranks.size());
    const auto start = Clock::now();
    execute(list, input, start, &result);
    if (training && !forward_only) finish_mini_batch(with_update);
    if (std::exchange(want_gradients, false)) {
      const double factor = correction();
      for (std::size_t stage = 0; stage < sizes.size(); ++stage) {
        finish_gradients(static_cast<int>(stage));
        scale_gradients(static_cast<int>(stage), factor);
      }
    }
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    collect(&result);
    return result;
  }

  /// Batch norm's statistics move once a mini-batch, whether or not the optimizer runs.
  void finish_mini_batch(bool updated) {
    for (auto& rank : ranks) {
      for (auto& stage : rank->stages()) stage->finish_mini_batch();
    }
    if (!updated && strategy.merge_steps > 1 &&
        std::abs(total_weight() - expected) > 1e-9 * expected) {
      abandon();
      refuse(
          "the loss's weight is not the number of rows; with gradient merge, set Loss::weight so "
          "that it is "
          "known before the step");
    }
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
            auto& runner = *ranks[static_cast<std::size_t>(rank)];
            runner.run(list, input, start, &result->timeline.ranks[static_cast<std::size_t>(rank)]);
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

  void abandon() {
    transport.reset();
    meeting.reset();
    for (auto& rank : ranks) rank->abandon();
    for (auto& use : shared.tied_uses) use->gradient = torch::Tensor();
    for (auto& parameters : stage_parameters) {
      for (auto& parameter : parameters) parameter.mutable_grad() = torch::Tensor();
    }
    num_merged = 0;
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
        if (keep_outputs != nullptr && !stage->outputs().empty())
          *keep_outputs = std::move(stage->outputs());
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

  /// What the gradients are to be multiplied with: the true weight instead of the expected one, and
  /// merge.
  double correction() const {
    const double weight = total_weight();
    double factor = weight > 0 ? expected / weight : 1;
    if (strategy.merge_steps > 1 && strategy.merge_average) factor /= strategy.merge_steps;
    return factor;
  }

  /// The gradients of a stage made final: uses of tied weights summed in layer order, and scaled.
  void finish_gradients(int stage) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : stage_parameters[static_cast<std::size_t>(stage)]) {
      torch::Tensor sum;
      for (auto& use : shared.tied_uses) {
        if (!use->parameter.is_same(parameter) || !use->gradient.defined()) continue;
        sum = sum.defined() ? sum.add_(use->gradient) : use->gradient;
        use->gradient = torch::Tensor();
      }
      if (sum.defined())
        parameter.mutable_grad() = parameter.grad().defined() ? parameter.grad().add_(sum) : sum;
    }
  }

  void scale_gradients(int stage, double factor) {
    if (factor == 1) return;
    const torch::NoGradGuard no_grad;
    for (auto& parameter : stage_parameters[static_cast<std::size_t>(stage)]) {
      if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
    }
  }

  /// STEP of a stage, on its rank's thread.
  void update(int stage) {
    const bool meets = !shared.tied_uses.empty() || strategy.clip_norm > 0;
    RankRunner& rank = *ranks[static_cast<std::size_t>(shared.layout.rank_of(stage))];
    if (stage == rank.stages().front()->stage()) {
      // Before the first STEP of the rank. Every rank has the last loss's weight only when all are
      // done.
      if (meets || strategy.ranks > 1) meeting.wait();
      const double factor = correction();
      for (auto& runner : rank.stages()) {
        finish_gradients(runner->stage());
        scale_gradients(runner->stage(), factor);
        if (strategy.clip_norm > 0)
          squared_norms[static_cast<std::size_t>(runner->stage())] = norms_of(runner->stage());
      }
      if (strategy.clip_norm > 0) clip(rank);
    }
    auto& optimizer = optimizers[static_cast<std::size_t>(stage)];
    if (!optimizer) return;
    optimizer->step();
    for (auto& parameter : stage_parameters[static_cast<std::size_t>(stage)])
      parameter.mutable_grad() = torch::Tensor();
  }

  std::vector<double> norms_of(int stage) const {
    std::vector<double> squares;
    for (const auto& parameter : stage_parameters[static_cast<std::size_t>(stage)]) {
      if (!parameter.grad().defined()) continue;
      const double norm = parameter.grad().norm().item<double>();
      squares.push_back(norm * norm);
    }
    return squares;
  }

  /// Norms are added in parameter order, whatever the partition.
  void clip(RankRunner& rank) {
    meeting.wait();
    double sum = 0;
    for (const auto& squares : squared_norms) {
      for (const double square : squares) sum += square;
    }
    const double norm = std::sqrt(sum);
    gradient_norm = norm;
    const double factor = strategy.clip_norm / (norm + 1e-6);
    meeting.wait();  // all have read the norms before a next step writes them
    if (factor >= 1) return;
    for (auto& runner : rank.stages()) scale_gradients(runner->stage(), factor);
  }

  Sequence model;
  Strategy strategy;
  std::vector<int> sizes;
  SharedModel shared;
  Workers workers;
  InprocTransport transport;
  Meeting meeting;
  std::vector<std::unique_ptr<RankRunner>> ranks;
  std::vector<std::vector<torch::Tensor>> stage_parameters;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;  // by stage
  std::vector<std::vector<double>> squared_norms;                    // by stage
  std::map<std::tuple<int, bool, bool>, Program> programs;
  std::int64_t num_steps = 0;
  int num_merged = 0;
  double expected = 1;
  bool want_gradients = false;
  std::map<int, Tensors>* keep_outputs = nullptr;
  std::atomic<double> gradient_norm = 0;
};

Trainer::Trainer(Sequence model, Loss loss, OptimizerFactory optimizer, Strategy strategy) {
  check_strategy(strategy);
  impl_ = std::make_unique<Impl>(std::move(model), std::move(loss), std::move(optimizer),
                                 std::move(strategy));
}

Trainer::~Trainer() = default;

StepResult Trainer::step(const Batch& batch) {
  if (batch.targets.empty()) refuse("the batch has no targets");
  const bool last = impl_->num_merged + 1 == impl_->strategy.merge_steps;
  StepResult result = impl_->run(batch, true, last, false);
  result.updated = last;
  impl_->num_merged = last ? 0 : impl_->num_merged + 1;
  ++impl_->num_steps;
  return result;
}

StepResult Trainer::gradients(const Batch& batch) {
  if (batch.targets.empty()) refuse("the batch has no targets");
  impl_->want_gradients = true;
  StepResult result = impl_->run(batch, true, false, false);
  ++impl_->num_steps;
  return result;
}

StepResult Trainer::evaluate(const Batch& batch) {
  if (batch.targets.empty()) refuse("the batch has no targets");
  const EvalMode eval(impl_->model);
  StepResult result = impl_->run(batch, false, false, true);
  return result;
}

Tensors Trainer::predict(const Tensors& inputs) {
  const EvalMode eval(impl_->model);
  Batch batch;
  batch.inputs = inputs;
  std::map<int, Tensors> parts;
  impl_->keep_outputs = &parts;
  const auto forget = [&](void*) { impl_->keep_outputs = nullptr; };
  const std::unique_ptr<void, decltype(forget)> guard(&parts, forget);
  impl_->run(batch, false, false, true);
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

std::vector<torch::optim::Optimizer*> Trainer::optimizers() {
  std::vector<torch::optim::Optimizer*> result;
  for (auto& optimizer : impl_->optimizers) result.push_back(optimizer.get());
  return result;
}

std::vector<std::pair<std::string, torch::Tensor>> Trainer::state_dict() const {
  auto state = impl_->model.named_parameters();
  for (auto& buffer : impl_->model.named_buffers()) state.push_back(std::move(buffer));
  return state;
}

}  // namespace pipewright
