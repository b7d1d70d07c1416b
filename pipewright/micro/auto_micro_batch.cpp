#include "pipewright/micro/auto_micro_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/graph/batch_analysis.h"
#include "pipewright/graph/cut.h"
#include "pipewright/micro/captured.h"
#include "pipewright/micro/probe.h"
#include "pipewright/torch/compat.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kExampleRows = 5;  // to see what the batch does in a graph
constexpr int kLanesOfGpu = 2;
constexpr int kRounds = 3;  // of measuring a choice

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("auto_micro_batch", why); }

void check_options(const AutoMicroBatchOptions& o) {
  if (o.num < 0) refuse(fmt::format("num = {}; use 1 or more, or 0 to have it measured", o.num));
  if (o.lanes < 0) refuse(fmt::format("lanes = {}; use 1 or more, or 0 for one a core", o.lanes));
  if (o.threads < 0)
    refuse(fmt::format("threads = {}; use 1 or more, or 0 for a share", o.threads));
  if (o.num > 0 && o.lanes > o.num)
    refuse(fmt::format("{} lanes for num = {}; use {} or fewer", o.lanes, o.num, o.num));
}

torch::Device device_of(const Sequence& model) {
  std::optional<torch::Device> device;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (device && *device != parameter.device())
      refuse(fmt::format("parameters are on {} and {}; move the model to one device", device->str(),
                         parameter.device().str()));
    device = parameter.device();
  }
  return device.value_or(torch::Device(torch::kCPU));
}

/// What autocast the caller has on.
Precision precision_of(torch::Device device) {
  if (!compat::autocast_enabled(device.type())) return Precision::kFull;
  return compat::autocast_dtype(device.type()) == torch::kHalf ? Precision::kFp16
                                                               : Precision::kBf16;
}

void synchronize(torch::Device device) {
  if (!device.is_cpu()) DeviceStream(device).synchronize(std::chrono::minutes(5));
}

/// `.grad += gradient`, as autograd does it.
void accumulate(const torch::Tensor& parameter, torch::Tensor gradient) {
  torch::Tensor& grad = parameter.mutable_grad();
  if (!grad.defined()) {
    grad = std::move(gradient);
  } else if (grad.is_sparse() == gradient.is_sparse() || gradient.is_sparse()) {
    grad.add_(gradient);
  } else {
    grad = gradient + grad;  // a dense one to a sparse one
  }
}

Tensors first_rows(const Batch& batch) {
  Tensors rows;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    const bool shared = i < batch.shared_inputs.size() && batch.shared_inputs[i] != 0;
    rows.push_back(shared ? batch.inputs[i] : batch.inputs[i].slice(0, 0, kExampleRows));
  }
  return rows;
}

}  // namespace

/// A step that was captured: what it reads, and what every replay writes.
struct Captured {
  StepInput input;
  std::unique_ptr<CapturedWork> work;
  LaneResult result;

  bool fits(const StepInput& other) const {
    const auto alike = [](const std::vector<Tensors>& a, const std::vector<Tensors>& b) {
      if (a.size() != b.size()) return false;
      for (std::size_t m = 0; m < a.size(); ++m) {
        if (a[m].size() != b[m].size()) return false;
        for (std::size_t i = 0; i < a[m].size(); ++i) {
          if (a[m][i].sizes() != b[m][i].sizes() || a[m][i].dtype() != b[m][i].dtype())
            return false;
        }
      }
      return true;
    };
    return alike(input.inputs, other.inputs) && alike(input.targets, other.targets) &&
           input.precision == other.precision;
  }

  void take(const StepInput& other) const {
    const torch::NoGradGuard no_grad;
    for (std::size_t m = 0; m < input.inputs.size(); ++m) {
      for (std::size_t i = 0; i < input.inputs[m].size(); ++i)
        input.inputs[m][i].copy_(other.inputs[m][i], /*non_blocking=*/true);
      for (std::size_t i = 0; i < input.targets[m].size(); ++i)
        input.targets[m][i].copy_(other.targets[m][i], /*non_blocking=*/true);
    }
  }
};

struct AutoMicroBatch::Impl {
  Impl(Sequence of, Loss its_loss, AutoMicroBatchOptions chosen)
      : model(std::move(of)), loss(std::move(its_loss)), options(chosen) {
    check_options(options);
    if (!graph && !loss.value) refuse("the loss has no function");
  }
  Impl(Graph of, std::optional<Loss> its_loss, AutoMicroBatchOptions chosen)
      : graph(std::move(of)), has_loss(!its_loss), options(chosen) {
    check_options(options);
    if (its_loss) loss = std::move(*its_loss);
    model = cut(*graph).model;
  }

  bool divided() const { return options.reduction == Reduction::kMean; }

  /// Before the first batch that shows something.
  void check(const Batch& batch) {
    if (checked || rows_of(batch) < 2) return;
    if (graph) {
      const BatchReport report =
          analyse_batch(*graph, first_rows(batch), {.shared_inputs = batch.shared_inputs});
      if (options.check) report.check();
      if (has_loss) take_loss(report);
    } else if (options.check && options.num != 1) {
      model.build_all();
      probe_samples(model, loss, device_of(model), divided(), batch);
    }
    checked = true;
  }

  /// Of a graph that returns it.
  void take_loss(const BatchReport& report) {
    CutLoss made = cut_with_loss(*graph, report, {}, /*divide_sum=*/true);
    model = std::move(made.model);
    loss = std::move(made.loss);
    const bool sum = !report.outputs.empty() && report.outputs[0].kind == Spread::Kind::kSum;
    if (sum) options.reduction = Reduction::kSum;
  }

  void make_lanes(int num_lanes, int num_threads) {
    if (lanes && lanes->lanes() == num_lanes && threads == num_threads) return;
    captured.reset();
    lanes.reset();
    lanes = std::make_unique<Lanes>(
        model, loss,
        LaneOptions{.lanes = num_lanes, .threads = num_threads, .device = device_of(model)});
    threads = num_threads;
  }

  int lanes_for(int micro_batches) const {
    const bool cpu = device_of(model).is_cpu();
    const int wanted =
        options.lanes > 0 ? options.lanes : (cpu ? torch::get_num_threads() : kLanesOfGpu);
    return std::clamp(wanted, 1, micro_batches);
  }

  int threads_for(int num_lanes) const {
    if (options.threads > 0) return options.threads;
    return std::max(1, torch::get_num_threads() / num_lanes);
  }

  void prepare(const Batch& first, int given) {
    model.build_all();
    check(first);
    if (lanes) return;
    if (!loss.value) refuse("the first batch has one row; how the loss reduces rows needs two");
    if (options.num == 0 && given == 0) return measure(first);
    num = given > 0 ? given : options.num;
    const int num_lanes = lanes_for(num);
    make_lanes(num_lanes, threads_for(num_lanes));
  }

  std::vector<int> choices(std::int64_t rows) const {
    std::vector<int> result = {1};
    const int most = lanes_for(static_cast<int>(std::min<std::int64_t>(rows, 1024)));
    for (const int n : {most, 2 * most, 4 * most}) {
      if (n > result.back() && n <= rows) result.push_back(n);
    }
    return result;
  }

  /// Takes the number of micro-batches with which this batch is fastest.
  void measure(const Batch& batch) {
    double best = 0;
    for (const int n : choices(rows_of(batch))) {
      const int num_lanes = lanes_for(n);
      make_lanes(num_lanes, threads_for(num_lanes));
      const double seconds = seconds_of(batch, n);
      words += fmt::format("{} micro-batches on {} lanes of {} threads: {:.3g} ms\n", n, num_lanes,
                           threads, 1e3 * seconds);
      if (num == 0 || seconds < best) {
        best = seconds;
        num = n;
      }
    }
    const int num_lanes = lanes_for(num);
    make_lanes(num_lanes, threads_for(num_lanes));
  }

  double seconds_of(const Batch& batch, int n) {
    double least = 0;
    for (int round = 0; round <= kRounds; ++round) {  // the first warms up
      const auto start = Clock::now();
      run(input_of(batch, n));
      synchronize(device_of(model));
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (round == 1 || (round > 1 && seconds < least)) least = seconds;
    }
    return least;
  }

  StepInput input_of(const Batch& batch, int n) const {
    const int parts = static_cast<int>(std::min<std::int64_t>(n, rows_of(batch)));
    return lane_input(split(batch.inputs, batch.shared_inputs, parts),
                      split(batch.targets, {}, parts), loss, divided());
  }

  LaneResult run(StepInput input) {
    input.step = step;
    input.run_seed = options.seed;
    input.precision = precision_of(device_of(model));
    return options.capture ? replay(input) : lanes->run(input, Clock::now());
  }

  /// Gradients are copies: the next replay writes the captured ones again.
  LaneResult replay(const StepInput& input) {
    if (!captured) capture(input);
    if (!captured->fits(input)) return lanes->run(input, Clock::now());
    const torch::NoGradGuard no_grad;
    captured->take(input);
    captured->work->replay();
    LaneResult result;
    const double factor = captured->input.weight / input.weight;
    for (const torch::Tensor& gradient : captured->result.gradients)
      result.gradients.push_back(gradient.defined() ? gradient * factor : gradient);
    for (std::size_t m = 0; m < captured->result.losses.size(); ++m) {
      const LossValue& value = captured->result.losses[m];
      result.losses.push_back(
          {value.sum.clone(), input.weights.empty() ? value.weight : input.weights[m]});
    }
    return result;
  }

  void capture(const StepInput& input) {
    const torch::Device device = device_of(model);
    auto made = std::make_unique<Captured>();
    made->input = input;  // divided by its weight, which replays correct
    for (std::vector<Tensors>* lists : {&made->input.inputs, &made->input.targets}) {
      for (Tensors& list : *lists) {
        for (torch::Tensor& tensor : list) tensor = tensor.detach().to(device).clone();
      }
    }
    made->work = std::make_unique<CapturedWork>(device, [&] {
      made->result = lanes->run_in_turn(made->input);
      for (const torch::Tensor& gradient : made->result.gradients) {
        if (gradient.defined() && gradient.is_sparse())
          refuse(
              "cannot capture sparse gradients, whose size depends on the batch; use dense ones");
      }
    });
    captured = std::move(made);
  }

  MicroBatchResult backward(StepInput input) {
    const double expected = input.weight;
    MicroBatchResult result;
    result.micro_batches = static_cast<int>(input.inputs.size());
    LaneResult made = run(std::move(input));
    ++step;
    const torch::NoGradGuard no_grad;
    for (const LossValue& value : made.losses) {
      result.loss = result.loss.defined() ? result.loss + value.sum : value.sum;
      result.weight += value.weight;
    }
    if (!divided()) result.weight = 1;
    const bool corrected = result.weight > 0 && result.weight != expected;
    if (result.weight > 0) result.loss = result.loss / result.weight;
    for (std::size_t p = 0; p < made.gradients.size(); ++p) {
      torch::Tensor& gradient = made.gradients[p];
      if (!gradient.defined()) continue;
      if (corrected) gradient.mul_(expected / result.weight);
      accumulate(lanes->parameters()[p].second, std::move(gradient));
    }
    return result;
  }

  std::optional<Graph> graph;
  bool has_loss = false;  // the graph returns it
  Sequence model;
  Loss loss;
  AutoMicroBatchOptions options;
  bool checked = false;
  int num = 0;
  int threads = 0;
  std::int64_t step = 0;
  std::string words;
  std::unique_ptr<Lanes> lanes;  // its threads use the others
  std::unique_ptr<Captured> captured;
};

AutoMicroBatch::AutoMicroBatch(Sequence model, Loss loss, AutoMicroBatchOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(loss), options)) {}

AutoMicroBatch::AutoMicroBatch(Graph graph, Loss loss, AutoMicroBatchOptions options)
    : impl_(std::make_unique<Impl>(std::move(graph), std::optional(std::move(loss)), options)) {}

AutoMicroBatch::AutoMicroBatch(Graph graph, AutoMicroBatchOptions options)
    : impl_(std::make_unique<Impl>(std::move(graph), std::nullopt, options)) {}

AutoMicroBatch::~AutoMicroBatch() = default;

MicroBatchResult AutoMicroBatch::backward(const Batch& batch) {
  rows_of(batch);
  if (batch.targets.empty()) refuse("the batch has no targets");
  impl_->prepare(batch, 0);
  return impl_->backward(impl_->input_of(batch, impl_->num));
}

MicroBatchResult AutoMicroBatch::backward(const std::vector<Batch>& micro_batches) {
  if (micro_batches.empty()) refuse("there are no micro-batches");
  std::vector<Tensors> inputs;
  std::vector<Tensors> targets;
  for (const Batch& one : micro_batches) {
    rows_of(one);
    if (one.targets.empty()) refuse("a micro-batch has no targets");
    inputs.push_back(one.inputs);
    targets.push_back(one.targets);
  }
  impl_->prepare(micro_batches.front(), static_cast<int>(micro_batches.size()));
  return impl_->backward(
      lane_input(std::move(inputs), std::move(targets), impl_->loss, impl_->divided()));
}

int AutoMicroBatch::num() const { return impl_->num > 0 ? impl_->num : impl_->options.num; }
int AutoMicroBatch::lanes() const { return impl_->lanes ? impl_->lanes->lanes() : 0; }
const std::string& AutoMicroBatch::measured() const { return impl_->words; }

Loss AutoMicroBatch::plain_loss(
    std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> f,
    Reduction reduction) {
  Loss loss;
  loss.value = [f = std::move(f), reduction](const Tensors& outputs,
                                             const Tensors& targets) -> LossValue {
    const auto rows = static_cast<double>(targets[0].size(0));
    const torch::Tensor value = f(outputs.at(0), targets[0]);
    if (value.numel() != 1) refuse("the loss function must return one number");
    return {reduction == Reduction::kMean ? value * rows : value, rows};
  };
  loss.weight = [](const Tensors& targets) { return static_cast<double>(targets[0].size(0)); };
  return loss;
}

}  // namespace pipewright
