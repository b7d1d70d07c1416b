#include "pipewright/app/run.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>

#include "pipewright/app/area_meter.h"
#include "pipewright/app/choose_lanes.h"
#include "pipewright/app/clicks.h"
#include "pipewright/app/fit.h"
#include "pipewright/app/make.h"
#include "pipewright/app/measure.h"
#include "pipewright/app/setup.h"
#include "pipewright/app/weights.h"
#include "pipewright/app/weights_hash.h"
#include "pipewright/base/error.h"
#include "pipewright/checkpoint/reader.h"
#include "pipewright/config/problem.h"
#include "pipewright/config/write.h"
#include "pipewright/data/loader.h"
#include "pipewright/plan/search.h"
#include "pipewright/run/folder.h"
#include "pipewright/run/log.h"
#include "pipewright/run/measured_costs.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"
#include "pipewright/train/step_program.h"
#include "pipewright/train/trainer.h"
#include "pipewright/transport/environment.h"

namespace pipewright::app {
namespace {

using Clock = std::chrono::steady_clock;

LoaderOptions loader_options(const config::Config& config, bool shuffle) {
  return {.batch = rows_a_step(config),
          .shuffle = shuffle,
          .seed = static_cast<std::uint64_t>(config.seed),
          .workers = static_cast<int>(config.data.workers),
          .prefetch = static_cast<int>(config.data.prefetch)};
}

std::int64_t num_steps_of(const config::Config& config, const DataLoader& loader) {
  if (config.train.steps > 0) return config.train.steps;
  return config.train.epochs * loader.batches_per_epoch();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Where the run stands beside its tensors; kept with each checkpoint.
struct Progress {
  double best = std::numeric_limits<double>::infinity();  // validation loss
  std::int64_t worse = 0;                                 // validations since it
};

class Run {
 public:
  Run(const config::Config& config, std::string run_dir, const Hooks& hooks,
      const std::optional<Plan>& plan)
      : config_(config),
        given_plan_(plan),
        run_dir_(std::move(run_dir)),
        hooks_(hooks),
        data_(open_data(config)),
        loader_(data_.training, loader_options(config, config.data.shuffle)),
        num_steps_(num_steps_of(config, loader_)),
        model_(make_model(config, data_)),
        strategy_(fitted_strategy()),
        asynchronous_(find_schedule(strategy_.schedule).asynchronous),
        trainer_(model_.layers, watched_loss(), make_optimizer(config), strategy_),
        first_(config.pipeline.transport == "threads" || read_environment().rank == 0) {
    check_validation();
    check_export(config);
  }

  Ending go(bool resume) {
    if (!resume) load_weights(config_, &trainer_, hooks_.note);  // before anything is written
    open_folder(resume);
    plan_ = make_plan();
    if (folder_) {
      folder_->write_plan(plan_);
      if (profile_) folder_->write_profile(*profile_);
    }
    const std::int64_t done = resume ? restore() : 0;
    if (resume && done == 0) load_weights(config_, &trainer_, hooks_.note);
    ending_.steps = done;
    if (folder_) begin_session(done);
    note(fmt::format("{}: {} layers, {}", name(), trainer_.model().size(), data_.words));
    if (done >= num_steps_)
      note(fmt::format("all {} steps are done; for more, raise train.steps or train.epochs", done));
    if (hooks_.begin) hooks_.begin(done, num_steps_);
    try {
      train_from(done);
    } catch (const std::exception& error) {
      if (folder_) folder_->end_session(trainer_.num_steps(), Outcome::kFailed, error.what());
      throw;
    }
    finish();
    return std::move(ending_);
  }

 private:
  std::int64_t num_updates() const {
    return std::max<std::int64_t>(1, num_steps_ / config_.gradient_merge.steps);
  }

  std::string checkpoints() const {
    return config_.checkpoint.dir.empty() ? run_dir_ + "/" + std::string(kCheckpointsFolder)
                                          : config_.checkpoint.dir;
  }

  void note(const std::string& line) const {
    if (hooks_.note) hooks_.note(line);
  }

  void check_validation() const {
    if (config_.train.validate_every == 0 || data_.validation) return;
    throw InvalidArgument("config",
                          "train.validate_every needs data to validate with; set "
                          "data.validation_path");
  }

  void open_folder(bool resume) {
    ending_.run_dir = run_dir_;
    if (!first_) return;
    const std::filesystem::path path(run_dir_);
    if (resume && std::filesystem::exists(path / kRunFile)) {
      folder_.emplace(RunFolder::open(run_dir_));
    } else {
      const auto whole = std::filesystem::absolute(path).lexically_normal();
      folder_.emplace(
          RunFolder::create(whole.parent_path().string(), whole.filename().string(), facts()));
    }
    folder_->write_config(config::to_toml(config_));
  }

  /// Measures where the config, or the report on a plan, needs it.
  Strategy fitted_strategy() {
    check_fits(config_, model_.layers);
    Strategy strategy = make_strategy(config_, num_updates());
    choose_lanes(config_, data_, model_.layers, hooks_.note, &strategy);
    if (given_plan_) use_operations(*given_plan_, &strategy);
    if (measures(config_) || given_plan_) {
      grid_ = make_grid(strategy);
      profile_ = measure_layers(config_, strategy, grid_, data_, model_.layers, hooks_.note);
    }
    fit_strategy(config_, model_.layers, profile_, &strategy);
    return strategy;
  }

  Loss watched_loss() const {
    return is_of_clicks(config_) ? area_.watch(make_loss(config_)) : make_loss(config_);
  }

  RunFacts facts() const {
    RunFacts facts = facts_of_this_machine();
    facts.name = std::filesystem::path(run_dir_).filename().string();
    facts.model = name();
    facts.threads_per_rank = strategy_.threads_per_rank;
    facts.num_steps = num_steps_;
    facts.versions["libtorch"] = TORCH_VERSION;
    facts.strategy["schedule"] = strategy_.schedule;
    facts.strategy["ranks"] = fmt::format("{} {}", strategy_.ranks, strategy_.transport);
    facts.strategy["micro_batches"] = std::to_string(strategy_.micro_batches);
    if (strategy_.lanes > 0) facts.strategy["lanes"] = std::to_string(strategy_.lanes);
    facts.strategy["recompute"] = given_plan_ ? given_plan_->recompute() : config_.recompute.mode;
    return facts;
  }

  /// As it is trained; with what is predicted for it, where the layers were measured.
  Plan make_plan() const {
    if (given_plan_) return *given_plan_;
    Plan plan;
    plan.model = name();
    plan.schedule = strategy_.schedule;
    plan.ranks = strategy_.ranks;
    plan.micro_batches = strategy_.micro_batches;
    plan.global_batch = (config_.data.batch + strategy_.replicas - 1) / strategy_.replicas;
    plan.micro_batch_size =
        static_cast<int>((plan.global_batch + plan.micro_batches - 1) / plan.micro_batches);
    plan.sizes = trainer_.sizes();
    plan.chunks = static_cast<int>(plan.sizes.size()) / plan.ranks;
    plan.memory_bytes = config_.recompute.budget;
    if (strategy_.recompute != RecomputeMode::kNone) {
      plan.operations = trainer_.operations();
      plan.except_last = strategy_.recompute == RecomputeMode::kExceptLast;
      plan.offload = trainer_.offload();
      plan.offload.resize(plan.operations.size());
    }
    return profile_ ? predict(std::span(&*profile_, 1), plan) : plan;
  }

  void begin_session(std::int64_t done) {
    const SessionStart start = folder_->begin_session(done);
    if (start.dropped_steps > 0)
      note(fmt::format("{} logged steps after the checkpoint are done again", start.dropped_steps));
    log_.emplace(*folder_, config_.log.tensorboard);
  }

  /// The steps that were done.
  std::int64_t restore() {
    const Resumed resumed = trainer_.resume(checkpoints());
    for (const RefusedCheckpoint& refused : resumed.refused)
      note(fmt::format("not used: {}: {}", refused.path, refused.reason));
    for (const std::string& line : resumed.notes) note(line);
    if (!resumed) {
      note(fmt::format("no checkpoint in {}: starts from the beginning", checkpoints()));
      return 0;
    }
    loader_.seek(data_position_from_json(resumed.state.at("data")));
    if (!resumed.state.at("best").is_null())
      progress_.best = resumed.state.at("best").get<double>();
    progress_.worse = resumed.state.at("worse").get<std::int64_t>();
    note(fmt::format("goes on from {}", resumed.path));
    return resumed.step;
  }

  nlohmann::json state() const {
    return {
        {"data", to_json(loader_.position())},
        {"best", std::isfinite(progress_.best) ? nlohmann::json(progress_.best) : nlohmann::json()},
        {"worse", progress_.worse}};
  }

  void train_from(std::int64_t done) {
    const auto start = Clock::now();
    std::int64_t samples = 0;
    for (std::int64_t step = done + 1; step <= num_steps_; ++step) {
      SampleBatch batch = loader_.next();
      rows_.push_back(batch.inputs.front().size(0));
      samples += rows_.back();
      const StepResult result = trainer_.step({std::move(batch.inputs), std::move(batch.targets)});
      if (!result.pending) record(result);
      const bool good = validate(step);
      const bool last = step == num_steps_ || ending_.stopped || !good;
      if (last || (config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0)) save();
      if (last) keep_timeline();
      if (last) break;
      if (hooks_.interrupted && hooks_.interrupted()) trainer_.ask_to_stop();
    }
    trainer_.wait_for_save();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    ending_.samples_per_second = seconds > 0 ? static_cast<double>(samples) / seconds : 0;
  }

  /// Of an asynchronous schedule results come late: those that are not here yet.
  void catch_up() {
    for (const StepResult& result : trainer_.drain()) record(result);
  }

  void record(const StepResult& result) {
    const std::int64_t step = result.step + 1;
    const std::int64_t rows = rows_.front();
    rows_.pop_front();
    ending_.steps = step;
    ending_.stopped = ending_.stopped || result.stop_asked;
    timeline_ = result.timeline;
    micro_batches_ = result.micro_batches;
    ending_.final_loss = result.loss;
    ending_.bubble_fraction = bubble_of(result);
    step_seconds_.push_back(result.seconds);
    ending_.peak_bytes.resize(result.peak_bytes.size());
    for (std::size_t rank = 0; rank < result.peak_bytes.size(); ++rank)
      ending_.peak_bytes[rank] = std::max(ending_.peak_bytes[rank], result.peak_bytes[rank]);
    StepMetrics metrics;
    metrics.step = step;
    metrics.unix_time = unix_now();
    metrics.loss = result.loss;
    metrics.learning_rate = learning_rate(step);
    metrics.samples_per_second = static_cast<double>(rows) / result.seconds;
    metrics.seconds = result.seconds;
    metrics.bubble = ending_.bubble_fraction;
    if (strategy_.clip_norm > 0) metrics.gradient_norm = result.gradient_norm;
    const bool logged = step == 1 || step % config_.log.every == 0 || step == num_steps_;
    metrics.auc = area_of_step(logged);
    metrics.loss_scale = result.loss_scale;
    metrics.skipped = result.skipped;
    metrics.peak_bytes = result.peak_bytes;
    metrics.stage_peak_bytes = result.stage_peak_bytes;
    if (log_ && logged) log_->step(metrics);
    if (hooks_.step) hooks_.step(metrics);
  }

  /// Nothing where the model is not one of clicks.
  std::optional<double> area() {
    if (!is_of_clicks(config_)) return std::nullopt;
    return area_.take([&](const nlohmann::json& own) { return trainer_.gather(own); });
  }

  /// Processes tell each other what they have seen only where it is written down.
  std::optional<double> area_of_step(bool logged) {
    if (logged || strategy_.transport == "threads") return area();
    area_.forget();
    return std::nullopt;
  }

  /// Of an asynchronous schedule a step ends on one rank while the next has begun on another: what
  /// counts is the time from one to the next.
  double bubble_of(const StepResult& result) const {
    const StepTimes times(result.timeline);
    if (!asynchronous_) return times.bubble_fraction();
    return std::max(0.0, 1 - times.busy() / (strategy_.ranks * result.seconds));
  }

  /// Of the last update; of an asynchronous schedule, which skips none, of that step.
  double learning_rate(std::int64_t step) const {
    const std::int64_t updates =
        asynchronous_ ? step / strategy_.merge_steps : trainer_.num_updates();
    return config_.train.lr * strategy_.learning_rate(std::max<std::int64_t>(0, updates - 1));
  }

  /// False: the run is to end early.
  bool validate(std::int64_t step) {
    if (config_.train.validate_every == 0) return true;
    if (step % config_.train.validate_every != 0 && step != num_steps_) return true;
    catch_up();
    const double loss = validation_loss();
    std::map<std::string, double> values = {{"loss", loss}};
    const std::optional<double> auc = area();
    if (auc) values["auc"] = *auc;
    if (log_) log_->validation({step, unix_now(), values});
    const bool better = loss < progress_.best - config_.train.early_stop_margin;
    note(fmt::format("step {}: validation loss {:.4f}{}{}", step, loss,
                     auc ? fmt::format(", auc {:.4f}", *auc) : "",
                     better ? ", the best so far" : ""));
    progress_.worse = better ? 0 : progress_.worse + 1;
    if (better) {
      progress_.best = loss;
      if (config_.checkpoint.keep_best)
        trainer_.save(checkpoints() + "/best", {.keep = 1, .state = state()});
    }
    if (config_.train.early_stop == 0 || progress_.worse < config_.train.early_stop) return true;
    note(fmt::format("no better validation loss in {} validations: ends early", progress_.worse));
    return false;
  }

  double validation_loss() {
    DataLoader loader(data_.validation, loader_options(config_, false));
    std::int64_t batches = loader.batches_per_epoch();
    if (config_.train.validate_batches > 0)
      batches = std::min(batches, config_.train.validate_batches);
    double sum = 0;
    double weight = 0;
    for (std::int64_t i = 0; i < batches; ++i) {
      SampleBatch batch = loader.next();
      const StepResult result =
          trainer_.evaluate({std::move(batch.inputs), std::move(batch.targets)});
      sum += result.loss * result.weight;
      weight += result.weight;
    }
    return weight > 0 ? sum / weight : 0;
  }

  void save() {
    catch_up();
    trainer_.save(checkpoints(),
                  {.keep = static_cast<int>(config_.checkpoint.keep), .state = state()});
  }

  double predicted_bubble(const StepCosts& costs) const {
    const Simulation simulation = simulate(step_program(strategy_, micro_batches_), costs);
    return asynchronous_ ? simulation.asynchronous->steady.bubble_fraction()
                         : simulation.times.bubble_fraction();
  }

  void keep_timeline() {
    StepCosts costs;
    costs.stages = measured_costs(timeline_, trainer_.sizes().size());
    ending_.predicted_bubble_fraction = predicted_bubble(costs);
    if (!folder_ || !config_.log.trace) return;
    folder_->write_measured(ending_.steps, timeline_);
    if (profile_) folder_->write_predicted(predicted_timeline(std::span(&*profile_, 1), plan_));
  }

  void finish() {
    ending_.step_seconds = median(step_seconds_);
    export_weights(config_, &trainer_, first_);
    if (!folder_) return;
    save_script();
    if (const NewestWhole newest = newest_whole(checkpoints()); newest.checkpoint) {
      ending_.weights_sha256 = weights_hash(newest.checkpoint->tensors(Part::kWeights),
                                            make_model(config_, data_).layers);
    }
    folder_->end_session(ending_.steps, ending_.stopped ? Outcome::kStopped : Outcome::kFinished);
  }

  /// The model with its trained weights, as Python reads it. Of several processes none has them
  /// all.
  void save_script() {
    if (!model_.save_script || strategy_.transport != "threads") return;
    const std::string path = run_dir_ + "/model.pt";
    model_.save_script(path);
    note(fmt::format("the trained module: {}", path));
  }

  std::string name() const {
    return config_.model.file.empty() ? config_.model.name : config_.model.file;
  }

  const config::Config& config_;
  const std::optional<Plan>& given_plan_;
  std::string run_dir_;
  const Hooks& hooks_;
  DataSet data_;
  DataLoader loader_;
  std::int64_t num_steps_;
  MadeModel model_;
  Grid grid_;                       // where it was measured; the trainer's processes are the same
  std::optional<Profile> profile_;  // of one micro-batch, where it was measured
  Strategy strategy_;
  bool asynchronous_;
  AreaMeter area_;
  Trainer trainer_;
  bool first_;  // of all processes
  Progress progress_;
  std::optional<RunFolder> folder_;
  Plan plan_;
  std::optional<RunLog> log_;
  std::vector<double> step_seconds_;
  std::deque<std::int64_t> rows_;  // of the steps whose results are to come
  Timeline timeline_;              // of the last step
  int micro_batches_ = 1;          // of the last step, of this replica
  Ending ending_;
};

}  // namespace

Ending train(const config::Config& config, const std::string& run_dir, bool resume,
             const Hooks& hooks, const std::optional<Plan>& plan) {
  if (!plan) return Run(config, run_dir, hooks, plan).go(resume);
  const config::Config planned = planned_config(config, *plan);
  try {
    return Run(planned, run_dir, hooks, plan).go(resume);
  } catch (const config::KeyError& error) {  // of the plan's, not of the file's
    throw InvalidArgument("plan",
                          fmt::format("it does not fit: {}: {}", error.key(), error.words()));
  }
}

}  // namespace pipewright::app
