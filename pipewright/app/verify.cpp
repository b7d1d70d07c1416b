#include "pipewright/app/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "pipewright/app/fit.h"
#include "pipewright/app/reference.h"
#include "pipewright/app/setup.h"
#include "pipewright/base/error.h"
#include "pipewright/base/words.h"
#include "pipewright/data/loader.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/train/trainer.h"

namespace pipewright::app {
namespace {

constexpr int kMostRanks = 4;
constexpr int kSteps = 2;  // whose weights are compared, where gradients are not merged
constexpr double kFloatTolerance = 1e-3;
constexpr double kNoSize = 1e-6;  // of the largest gradient of all

constexpr std::array<std::pair<const char*, RecomputeMode>, 5> kModes = {
    {{"none", RecomputeMode::kNone},
     {"all", RecomputeMode::kAll},
     {"except_last", RecomputeMode::kExceptLast},
     {"every", RecomputeMode::kEvery},
     {"sqrt", RecomputeMode::kSqrt}}};

/// A way to train: what a case tries.
struct Way {
  Strategy strategy;
  std::string recompute;
};

double largest(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

/// nan where either is.
double apart(const torch::Tensor& a, const torch::Tensor& b, double scale) {
  const double difference = a.numel() == 0 ? 0 : (a - b.to(a.device())).abs().max().item<double>();
  return difference / std::max(scale, std::numeric_limits<double>::min());
}

Tensors as_float64(const Tensors& tensors) {
  Tensors result;
  for (const auto& tensor : tensors)
    result.push_back(tensor.is_floating_point() ? tensor.to(torch::kFloat64) : tensor);
  return result;
}

class Verifier {
 public:
  Verifier(const Subject& subject, const VerifyOptions& options, const OnCase& on_case)
      : subject_(subject), options_(options), on_case_(on_case) {
    const int all = subject.strategy.micro_batches * subject.strategy.replicas;
    result_.micro_batches =
        static_cast<int>(std::min<std::int64_t>(all, rows_of(subject.batches.front())));
    result_.steps = static_cast<int>(subject.batches.size());
    if (on_gpu())
      result_.notes.emplace_back(
          "bits are promised on the CPU; on a GPU they are shown, and not "
          "held against a case");
  }

  Verification go() {
    make_reference();
    for (const Way& way : ways()) try_way(way);
    return std::move(result_);
  }

 private:
  bool on_gpu() const {
    const auto& devices = subject_.strategy.devices;
    return std::any_of(devices.begin(), devices.end(),
                       [](const std::string& name) { return name.starts_with("cuda"); });
  }

  Sequence model(bool float64) const {
    Sequence model = subject_.make();
    model.build_all();
    for (const Layer& layer : model.layers()) {
      if (!layer.module) continue;
      if (float64) layer.module->to(torch::kFloat64);
      if (!subject_.strategy.devices.empty())
        layer.module->to(torch::Device(subject_.strategy.devices.front()));
    }
    return model;
  }

  Batch batch(bool float64) const {
    Batch batch = subject_.batches.front();
    if (!float64) return batch;
    batch.inputs = as_float64(batch.inputs);
    batch.targets = as_float64(batch.targets);
    return batch;
  }

  /// In float64, unless the model does not run in it.
  void make_reference() {
    try {
      refer_to(true);
    } catch (const c10::Error& error) {
      result_.notes.push_back(
          fmt::format("the model does not run in float64 ({}): gradients are compared in float32",
                      first_line(error.what_without_backtrace())));
      refer_to(false);
    }
  }

  void refer_to(bool float64) {
    float64_ = float64;
    result_.dtype = float64 ? "float64" : "float32";
    result_.tolerance = float64 ? options_.tolerance : kFloatTolerance;
    const Sequence plain = model(float64);
    whole_ = !sees_micro_batches(plain, batch(float64));
    result_.reference =
        whole_ ? "one forward and backward over the whole batch"
               : "a plain loop over the same micro-batches, since layers draw at random or keep "
                 "batch statistics";
    reference_ = plain_gradients(plain, subject_.loss, batch(float64),
                                 whole_ ? 1 : result_.micro_batches, subject_.strategy.seed);
    most_ = 0;
    for (const auto& [name, gradient] : reference_.gradients)
      most_ = std::max(most_, gradient.defined() ? largest(gradient) : 0);
  }

  Way own() const {
    Way way{subject_.strategy, subject_.recompute};
    way.strategy.transport = "threads";
    way.strategy.replicas = 1;
    way.strategy.shard_optimizer = false;
    way.strategy.micro_batches = subject_.strategy.micro_batches * subject_.strategy.replicas;
    way.strategy.threads_per_rank = std::max(1, subject_.strategy.threads_per_rank);
    if (find_schedule(way.strategy.schedule)
            .asynchronous) {  // delayed: other weights by definition
      way.strategy.schedule = "1f1b";
      way.strategy.vertical_sync = false;
    }
    return way;
  }

  Way way(const std::string& schedule, int ranks, std::size_t mode) const {
    Way way = own();
    way.recompute = kModes[mode].first;
    Strategy& strategy = way.strategy;
    strategy.schedule = schedule;
    strategy.ranks = ranks;
    strategy.chunks = 0;
    strategy.sizes.clear();
    if (strategy.devices.size() > 1) strategy.devices.resize(1);
    strategy.recompute = kModes[mode].second;
    strategy.recompute_every = 2;
    strategy.checkpoints.clear();
    strategy.operations.clear();
    strategy.offload = false;
    strategy.offload_stages.clear();
    return way;
  }

  std::vector<Way> ways() const {
    std::vector<Way> ways = {way("1f1b", 1, 0), own()};
    for (std::size_t mode = 1; mode < kModes.size(); ++mode) ways.push_back(way("1f1b", 1, mode));
    std::set<int> ranks = {subject_.strategy.ranks};
    for (int count = 2; count <= kMostRanks; ++count) ranks.insert(count);
    const auto layers = subject_.make().size();
    std::size_t next = 0;
    for (const ScheduleInfo& info : all_schedules()) {
      if (info.forward_only || info.asynchronous) continue;
      for (const int count : ranks) {
        if (count == 1 || static_cast<std::size_t>(count * info.default_chunks) > layers) continue;
        for (std::size_t mode = 0; mode < (options_.full ? kModes.size() : 1); ++mode)
          ways.push_back(
              way(std::string(info.name), count, options_.full ? mode : next++ % kModes.size()));
      }
    }
    return ways;
  }

  void try_way(const Way& way) {
    VerifiedCase one;
    one.schedule = way.strategy.schedule;
    one.ranks = way.strategy.ranks;
    one.chunks = way.strategy.chunks > 0 ? way.strategy.chunks
                                         : find_schedule(way.strategy.schedule).default_chunks;
    one.recompute = way.recompute;
    compare_gradients(way, &one);
    compare_bits(way, &one);
    result_.cases.push_back(one);
    if (on_case_) on_case_(result_.cases.back());
  }

  void compare_gradients(const Way& way, VerifiedCase* one) {
    Strategy strategy = way.strategy;
    strategy.precision = Precision::kFull;
    strategy.scale_loss = false;
    const Sequence model = this->model(float64_);
    Trainer trainer(model, subject_.loss, subject_.optimizer, strategy);
    const double loss = trainer.gradients(batch(float64_)).loss;
    const double off = std::abs(loss - reference_.loss) /
                       std::max(std::abs(reference_.loss), std::numeric_limits<double>::min());
    note(one, &one->gradients, "loss", "", off);
    const auto parameters = trainer.model().named_parameters();
    internal_check(parameters.size() == reference_.gradients.size(), "the models differ");
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto& [name, expected] = reference_.gradients[i];
      const auto got = parameters[i].second.grad();
      double difference = std::numeric_limits<double>::infinity();
      if (got.defined() == expected.defined())
        difference =
            !got.defined() ? 0 : apart(expected, got, std::max(largest(expected), kNoSize * most_));
      note(one, &one->gradients, "gradient", name, difference);
    }
  }

  /// A difference of a gradient or of the loss: the largest is kept, and the first that is too
  /// much.
  void note(VerifiedCase* one, std::optional<Difference>* first, const char* what,
            const std::string& name, double difference) {
    if (!(difference <= one->gradient_difference)) one->gradient_difference = difference;
    if (difference <= result_.tolerance) return;
    // A wrong loss says less than the first gradient.
    if (!*first || ((*first)->what == "loss" && what != std::string("loss")))
      *first = difference_at(what, name, difference);
  }

  void compare_bits(const Way& way, VerifiedCase* one) {
    Trainer trainer(subject_.make(), subject_.loss, subject_.optimizer, way.strategy);
    std::vector<double> losses;
    for (const Batch& batch : subject_.batches) losses.push_back(trainer.step(batch).loss);
    NamedTensors state;
    for (const auto& [name, tensor] : trainer.state_dict())
      state.emplace_back(name, tensor.detach().cpu().clone());
    if (result_.cases.empty()) {
      losses_ = std::move(losses);
      state_ = std::move(state);
      return;
    }
    const std::optional<Difference> difference = first_other_bit(losses, state);
    one->bitwise = !difference;
    if (!on_gpu()) one->bits = difference;
  }

  std::optional<Difference> first_other_bit(const std::vector<double>& losses,
                                            const NamedTensors& state) {
    for (std::size_t i = 0; i < state.size(); ++i) {
      const auto& expected = state_[i].second;
      if (state[i].second.equal(expected)) continue;
      const auto a = expected.to(torch::kFloat64);
      return difference_at("weight", state[i].first,
                           apart(a, state[i].second.to(torch::kFloat64), largest(a)));
    }
    for (std::size_t i = 0; i < losses.size(); ++i) {
      if (losses[i] != losses_[i])
        return difference_at("loss", "", std::abs(losses[i] - losses_[i]) / std::abs(losses_[i]));
    }
    return std::nullopt;
  }

  Difference difference_at(const std::string& what, const std::string& name, double relative) {
    if (!cause_) {
      cause_ = layer_apart(model(float64_), batch(float64_), result_.micro_batches,
                           subject_.strategy.seed, whole_, result_.tolerance);
    }
    return {what, layer_of(name), name, relative, *cause_};
  }

  std::string layer_of(const std::string& tensor) const {
    const Sequence model = subject_.make();
    std::string found;
    for (const Layer& layer : model.layers()) {
      if (tensor.starts_with(layer.name + ".") && layer.name.size() > found.size())
        found = layer.name;
    }
    return found;
  }

  const Subject& subject_;
  const VerifyOptions& options_;
  const OnCase& on_case_;
  bool float64_ = true;
  bool whole_ = true;
  PlainGradients reference_;
  double most_ = 0;             // of all gradients' entries
  std::vector<double> losses_;  // of the first case
  NamedTensors state_;
  std::optional<std::string> cause_;
  Verification result_;
};

}  // namespace

std::string Difference::words() const {
  std::string text = tensor.empty()
                         ? fmt::format("the loss differs by {:.1e}", relative)
                         : fmt::format(
                               "the {} of '{}', in layer '{}', is the first that differs, "
                               "by {:.1e} of its size",
                               what, tensor, layer, relative);
  return cause.empty() ? text : fmt::format("{}; {}", text, cause);
}

std::string VerifiedCase::name() const {
  return fmt::format("{}, {} rank{}{}, recompute {}", schedule, ranks, ranks == 1 ? "" : "s",
                     chunks == 1 ? "" : fmt::format(" of {} stages", chunks), recompute);
}

bool Verification::passed() const { return first_failed() == nullptr; }

bool Verification::bitwise() const {
  return std::all_of(cases.begin(), cases.end(),
                     [](const VerifiedCase& one) { return one.bitwise; });
}

double Verification::max_relative_difference() const {
  double most = 0;
  for (const VerifiedCase& one : cases) {
    if (!(one.gradient_difference <= most)) most = one.gradient_difference;
  }
  return most;
}

const VerifiedCase* Verification::first_failed() const {
  const auto found = std::find_if(cases.begin(), cases.end(),
                                  [](const VerifiedCase& one) { return !one.passed(); });
  return found == cases.end() ? nullptr : &*found;
}

Verification verify(const Subject& subject, const VerifyOptions& options, const OnCase& on_case) {
  return Verifier(subject, options, on_case).go();
}

Verification verify_config(const config::Config& config, const VerifyOptions& options,
                           const OnCase& on_case, const Note& note) {
  config::Config threads = config;  // ranks are threads here
  threads.pipeline.transport = "threads";
  threads.data_parallel = {};
  const DataSet data = open_data(config);
  const Sequence model = make_model(config, data).layers;
  check_fits(threads, model);
  Subject subject;
  subject.make = [&] { return make_model(config, data).layers; };
  subject.loss = make_loss(config);
  subject.optimizer = make_optimizer(config);
  subject.recompute = config.recompute.mode;
  subject.strategy = make_strategy(threads, 1000);
  std::optional<Profile> profile;
  if (measures(threads))
    profile = measure_layers(threads, subject.strategy, Grid(), data, model, note);
  fit_strategy(threads, model, profile, &subject.strategy);
  subject.strategy.replicas = static_cast<int>(config.data_parallel.replicas);
  DataLoader loader(data.training, {.batch = std::min(config.data.batch, data.training->size()),
                                    .shuffle = config.data.shuffle,
                                    .seed = static_cast<std::uint64_t>(config.seed),
                                    .workers = 0});
  const std::int64_t steps = std::max<std::int64_t>(kSteps, config.gradient_merge.steps);
  for (std::int64_t step = 0; step < steps; ++step) {
    SampleBatch batch = loader.next();
    subject.batches.push_back({std::move(batch.inputs), std::move(batch.targets)});
  }
  return verify(subject, options, on_case);
}

}  // namespace pipewright::app
