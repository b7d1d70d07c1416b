// One training step of a model of clicks: the whole batch with all intra-op threads, against
// micro-batches on lanes. Sides take turns, round by round, so that what else the machine does
// falls on all of them.

#include "pipewright/micro/auto_micro_batch.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "benchmarks/common/headline.h"
#include "benchmarks/common/measure.h"
#include "pipewright/base/error.h"
#include "pipewright/data/click_source.h"
#include "pipewright/input/generated_clicks.h"
#include "pipewright/models/click_models.h"
#include "pipewright/torch/blas.h"

namespace {

using namespace pipewright;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string model = "deepfm";
  std::string device = "cpu";
  std::string optimizer = "adagrad";
  int threads = 2;
  int lanes = 2;
  int rounds = 9;
  double seconds = 1;  // of a side in a round
  int fields = 26;
  std::int64_t values = 10000;
  // As DeepFM of the package DeepCTR, whose model DeepRec's table is of.
  std::int64_t dim = 8;
  std::int64_t width = 128;
  std::int64_t depth = 2;
  bool dense = false;
  bool capture = false;
  std::string json;
};

constexpr int kNumbers = 13;
constexpr int kBatches = 8;  // made beforehand, taken in turn

std::vector<Batch> make_batches(const Options& o, std::int64_t rows) {
  const ClickSource source(
      std::make_shared<GeneratedClicks>(ClickLogOptions{.rows = rows * kBatches,
                                                        .numeric = kNumbers,
                                                        .fields = o.fields,
                                                        .values = o.values,
                                                        .interactions = 3}));
  std::vector<Batch> batches;
  for (int i = 0; i < kBatches; ++i) {
    std::vector<std::int64_t> samples(static_cast<std::size_t>(rows));
    std::iota(samples.begin(), samples.end(), i * rows);
    SampleBatch made = source.batch(samples, 0);
    Batch batch;
    for (const auto& x : made.inputs) batch.inputs.push_back(x.to(torch::Device(o.device)));
    batch.targets = {made.targets[0].to(torch::Device(o.device))};
    batches.push_back(std::move(batch));
  }
  return batches;
}

Sequence make_model(const Options& o) {
  torch::manual_seed(1);
  const ClickModelSizes sizes{.numeric = kNumbers,
                              .fields = o.fields,
                              .buckets = o.values + 1,
                              .dim = o.dim,
                              .width = o.width,
                              .depth = o.depth,
                              .history = 8,
                              .sparse = !o.dense};
  if (o.model == "deepfm") return make_deepfm(sizes);
  if (o.model == "wide_deep") return make_wide_deep(sizes);
  if (o.model == "dlrm") return make_dlrm(sizes);
  return make_din(sizes);
}

/// A plain loop's forward.
torch::Tensor forward(const Sequence& model, Tensors x) {
  std::map<std::string, torch::Tensor> skips;
  for (const Layer& layer : model.layers()) {
    for (const auto& name : layer.options.pop) x.push_back(skips.at(name));
    x = layer.forward(x);
    const auto& names = layer.options.stash;
    for (std::size_t i = 0; i < names.size(); ++i) skips[names[i]] = x[x.size() - names.size() + i];
    x.resize(x.size() - names.size());
  }
  return x.at(0);
}

/// One line of the table.
class Side {
 public:
  Side(const Options& o, int num, std::int64_t rows)
      : o_(o),
        num_(num),
        rows_(rows),
        model_(make_model(o)),
        batches_(make_batches(o, num * rows)) {
    for (const Layer& layer : model_.layers()) layer.module->to(torch::Device(o.device));
    for (const auto& [name, parameter] : model_.named_parameters())
      parameters_.push_back(parameter);
    if (o.optimizer == "sgd") {
      optimizer_ = std::make_unique<torch::optim::SGD>(parameters_, 0.01);
    } else if (o.optimizer == "adagrad") {
      optimizer_ = std::make_unique<torch::optim::Adagrad>(parameters_, 0.01);
    } else {
      optimizer_ = std::make_unique<torch::optim::Adam>(parameters_, 0.001);
    }
    if (num > 1 || o.capture) {
      lanes_ = std::make_unique<AutoMicroBatch>(
          model_, binary_cross_entropy(),
          AutoMicroBatchOptions{.num = num, .lanes = std::min(num, o.lanes), .capture = o.capture});
    }
  }

  std::string name() const {
    return num_ == 1 ? fmt::format("{} plain", rows_) : fmt::format("{} x {}", num_, rows_);
  }

  /// Samples a second over about `seconds`.
  void round(double seconds) {
    for (int i = 0; i < 3; ++i) step();
    wait();
    const auto start = Clock::now();
    const double cpu = bench::cpu_seconds();
    int steps = 0;
    double passed = 0;
    while (passed < seconds) {
      for (int i = 0; i < 5; ++i, ++steps) step();
      wait();
      passed = std::chrono::duration<double>(Clock::now() - start).count();
    }
    step_seconds_.push_back(passed / steps);
    cpu_seconds_ += (bench::cpu_seconds() - cpu) / steps;
  }

  double median_seconds() const {
    auto sorted = step_seconds_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  const std::vector<double>& step_seconds() const { return step_seconds_; }
  double update_seconds() const { return update_seconds_ / updates_; }
  double cpu_seconds_a_step() const {
    return cpu_seconds_ / static_cast<double>(step_seconds_.size());
  }
  double samples() const { return static_cast<double>(num_ * rows_); }

 private:
  void step() {
    const Batch& batch = batches_[static_cast<std::size_t>(next_++ % kBatches)];
    for (const auto& parameter : parameters_) parameter.mutable_grad() = torch::Tensor();
    if (lanes_) {
      lanes_->backward(batch);
    } else {
      torch::binary_cross_entropy_with_logits(forward(model_, batch.inputs), batch.targets[0])
          .backward();
    }
    const auto start = Clock::now();
    optimizer_->step();
    update_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
    ++updates_;
  }

  void wait() const {
    if (o_.device != "cpu") torch::cuda::synchronize();
  }

  Options o_;
  int num_;
  std::int64_t rows_;
  Sequence model_;
  std::vector<Batch> batches_;
  std::vector<torch::Tensor> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<AutoMicroBatch> lanes_;
  int next_ = 0;
  std::vector<double> step_seconds_;
  double cpu_seconds_ = 0;     // of a step, summed over rounds
  double update_seconds_ = 0;  // the optimizer's part, summed
  int updates_ = 0;
};

/// By how much more samples a second than the plain side, round by round.
std::vector<double> gains(const Side& side, const Side& plain) {
  std::vector<double> result;
  for (std::size_t i = 0; i < side.step_seconds().size(); ++i) {
    result.push_back((side.samples() / side.step_seconds()[i]) /
                         (plain.samples() / plain.step_seconds()[i]) -
                     1);
  }
  std::sort(result.begin(), result.end());
  return result;
}

void report(const Options& o, const std::vector<std::unique_ptr<Side>>& sides) {
  nlohmann::json lines;
  fmt::print("{} on {}, {} threads, {} lanes, {} rounds\n", o.model, o.device, o.threads, o.lanes,
             o.rounds);
  fmt::print("{:>12} {:>9} {:>9} {:>9} {:>11} {:>8}   {}\n", "", "step ms", "cpu ms", "update ms",
             "samples/s", "gain", "least, most");
  for (const auto& side : sides) {
    const double seconds = side->median_seconds();
    const auto gain = gains(*side, *sides.front());
    fmt::print("{:>12} {:>9.2f} {:>9.2f} {:>9.2f} {:>11.0f} {:>7.1f}%   {:.1f}%, {:.1f}%\n",
               side->name(), 1e3 * seconds, 1e3 * side->cpu_seconds_a_step(),
               1e3 * side->update_seconds(), side->samples() / seconds, 100 * gain[gain.size() / 2],
               100 * gain.front(), 100 * gain.back());
    if (side != sides.front()) {
      const bool has_aim = side->name() == "2 x 128";
      bench::add({fmt::format("auto micro batch, {} on {}, {} against 256 plain", o.model, o.device,
                              side->name()),
                  fmt::format("{:+.0f} %", 100 * gain[gain.size() / 2]), has_aim ? "+30 %" : "",
                  gain[gain.size() / 2] >= 0.3});
    }
    lines.push_back({{"side", side->name()},
                     {"step_seconds", side->step_seconds()},
                     {"samples_per_second", side->samples() / seconds},
                     {"gain", gain[gain.size() / 2]}});
  }
  if (o.json.empty()) return;
  std::FILE* file = std::fopen(o.json.c_str(), "w");
  if (file == nullptr) throw Error("bench", fmt::format("cannot write '{}'", o.json));
  const nlohmann::json all = {{"model", o.model},         {"device", o.device},
                              {"threads", o.threads},     {"lanes", o.lanes},
                              {"optimizer", o.optimizer}, {"sides", lines}};
  std::fputs((all.dump(1) + "\n").c_str(), file);
  std::fclose(file);
}

void run(const Options& o) {
  torch::set_num_threads(o.threads);
  std::vector<std::unique_ptr<Side>> sides;
  for (const auto& [num, rows] : {std::pair(1, 256), {2, 128}, {2, 256}, {4, 64}, {4, 256}})
    sides.push_back(std::make_unique<Side>(o, num, rows));
  for (int i = 0; i < o.rounds; ++i) {
    for (const auto& side : sides) side->round(o.seconds);
  }
  report(o, sides);
}

}  // namespace

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  Options o;
  CLI::App app("Lanes against a plain step");
  app.add_option("--model", o.model, "deepfm, wide_deep, dlrm, din");
  app.add_option("--device", o.device, "cpu, cuda:0");
  app.add_option("--optimizer", o.optimizer, "sgd, adagrad, adam");
  app.add_option("--threads", o.threads, "intra-op threads of the plain side; lanes share them");
  app.add_option("--lanes", o.lanes);
  app.add_option("--rounds", o.rounds);
  app.add_option("--seconds", o.seconds, "of a side in a round");
  app.add_option("--fields", o.fields);
  app.add_option("--values", o.values, "of a field");
  app.add_option("--dim", o.dim);
  app.add_option("--width", o.width);
  app.add_option("--depth", o.depth);
  app.add_flag("--dense", o.dense, "gradients of embeddings are dense");
  app.add_flag("--capture", o.capture, "all sides replay captured CUDA graphs; with --dense");
  app.add_option("--json", o.json, "a file for the raw times");
  CLI11_PARSE(app, argc, argv);
  try {
    run(o);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
