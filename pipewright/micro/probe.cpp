#include "pipewright/micro/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

constexpr std::int64_t kRows = 5;  // 2 and 3: sums, means and shared values cannot look alike
constexpr std::int64_t kFirstPart = 2;

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("auto_micro_batch", why); }

Tensors part_of(const Tensors& tensors, const std::vector<char>& shared, std::int64_t first,
                std::int64_t last) {
  Tensors part;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool whole = i < shared.size() && shared[i] != 0;
    part.push_back(whole ? tensors[i] : tensors[i].slice(0, first, last));
  }
  return part;
}

StepInput parts_of(const Batch& batch, const std::vector<std::int64_t>& ends, const Loss& loss,
                   bool divided) {
  std::vector<Tensors> inputs;
  std::vector<Tensors> targets;
  std::int64_t first = 0;
  for (const std::int64_t end : ends) {
    inputs.push_back(part_of(batch.inputs, batch.shared_inputs, first, end));
    targets.push_back(part_of(batch.targets, {}, first, end));
    first = end;
  }
  return lane_input(std::move(inputs), std::move(targets), loss, divided);
}

/// Loss and gradients, as numbers on the CPU, divided by the weight that the losses told.
struct Tried {
  double loss = 0;
  Tensors gradients;
};

Tried try_input(Lanes* lanes, const StepInput& input, bool divided) {
  const LaneResult made = lanes->run(input, std::chrono::steady_clock::now());
  double weight = 0;
  Tried tried;
  for (const LossValue& loss : made.losses) {
    tried.loss += loss.sum.item<double>();
    weight += loss.weight;
  }
  const bool correct = divided && weight > 0;
  if (correct) tried.loss /= weight;
  for (torch::Tensor gradient : made.gradients) {
    if (gradient.defined() && gradient.is_sparse()) gradient = gradient.to_dense();
    if (gradient.defined())
      gradient = gradient.to(torch::kCPU, torch::kFloat64) * (correct ? input.weight / weight : 1);
    tried.gradients.push_back(gradient);
  }
  return tried;
}

/// The largest difference, as a share of the largest value.
double difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() && !b.defined()) return 0;
  const torch::Tensor x = a.defined() ? a : torch::zeros_like(b);
  const torch::Tensor y = b.defined() ? b : torch::zeros_like(a);
  if (x.numel() == 0) return 0;
  const double size = std::max(x.abs().max().item<double>(), y.abs().max().item<double>());
  return size == 0 ? 0 : (x - y).abs().max().item<double>() / size;
}

struct Difference {
  double share = 0;
  double of_loss = 0;
  std::string what;  // "the loss", "the gradient of 'fc.weight'"
};

Difference compare(const Tried& whole, const Tried& split, const Lanes& lanes) {
  const double of_loss = std::abs(whole.loss - split.loss) /
                         std::max({std::abs(whole.loss), std::abs(split.loss), 1e-30});
  Difference worst{of_loss, of_loss, "the loss"};
  // Gradients of one parameter may cancel out to nothing but rounding: they are seen beside all.
  double largest = 0;
  for (const torch::Tensor& gradient : whole.gradients) {
    if (gradient.defined() && gradient.numel() > 0)
      largest = std::max(largest, gradient.abs().max().item<double>());
  }
  for (std::size_t p = 0; p < whole.gradients.size(); ++p) {
    const torch::Tensor& a = whole.gradients[p];
    const torch::Tensor& b = split.gradients[p];
    const double share = difference(a, b);
    const double size = a.defined() && a.numel() > 0 ? a.abs().max().item<double>() : 0;
    if (share <= worst.share || (size < 1e-5 * largest && share * size < 1e-7 * largest)) continue;
    worst = {share, of_loss, fmt::format("the gradient of '{}'", lanes.parameters()[p].first)};
  }
  return worst;
}

/// What rounding may do.
double tolerance(const Lanes& lanes) {
  double most = 1e-8;
  for (const auto& [name, parameter] : lanes.parameters()) {
    if (parameter.scalar_type() == torch::kFloat32) most = std::max(most, 2e-3);
    if (parameter.element_size() < 4) most = std::max(most, 0.1);
  }
  return most;
}

/// Eval mode for all modules while it lives.
class EvalMode {
 public:
  explicit EvalMode(const Sequence& model) {
    for (const Layer& layer : model.layers()) {
      if (!layer.module) continue;
      for (const auto& module : layer.module->modules())
        were_training_.emplace_back(module, module->is_training());
      layer.module->eval();
    }
  }
  ~EvalMode() {
    // Those above come first: train() goes on to what is below.
    for (const auto& [module, training] : were_training_) module->train(training);
  }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> were_training_;
};

/// Puts buffers back, and finds those that were written to.
class Buffers {
 public:
  explicit Buffers(const Sequence& model) : named_(model.named_buffers()) {
    for (const auto& [name, buffer] : named_) kept_.push_back(buffer.clone());
  }
  ~Buffers() {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < kept_.size(); ++i) named_[i].second.copy_(kept_[i]);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  std::string changed() const {
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (!torch::equal(kept_[i], named_[i].second)) return named_[i].first;
    }
    return {};
  }

 private:
  std::vector<std::pair<std::string, torch::Tensor>> named_;
  Tensors kept_;
};

}  // namespace

StepInput lane_input(std::vector<Tensors> inputs, std::vector<Tensors> targets, const Loss& loss,
                     bool divided) {
  StepInput input;
  input.inputs = std::move(inputs);
  input.targets = std::move(targets);
  if (!divided) {
    input.weight = 1;
    return input;
  }
  double sum = 0;
  for (const Tensors& of_one : input.targets) {
    if (loss.weight) {
      input.weights.push_back(loss.weight(of_one));
      sum += input.weights.back();
    } else {
      sum += static_cast<double>(of_one.front().size(0));
    }
  }
  input.weight = sum > 0 ? sum : 1;
  return input;
}

bool probe_samples(const Sequence& model, const Loss& loss, torch::Device device, bool divided,
                   const Batch& batch) {
  const std::int64_t rows = std::min(kRows, rows_of(batch));
  if (rows < 2) return false;
  Lanes lanes(model, loss, {.lanes = 1, .threads = 1, .device = device});
  const std::int64_t first = std::min(kFirstPart, rows - 1);
  StepInput whole = parts_of(batch, {rows}, loss, divided);
  const StepInput split = parts_of(batch, {first, rows}, loss, divided);
  const Buffers buffers(model);
  Difference found;
  const auto try_both = [&] {
    found = compare(try_input(&lanes, whole, divided), try_input(&lanes, split, divided), lanes);
    return found.share <= tolerance(lanes);
  };
  const bool same = try_both();
  if (const std::string name = buffers.changed(); !name.empty()) {
    refuse(
        fmt::format("the forward writes to the buffer '{}', which lanes would do at the same "
                    "time; use num = 1, or a model that does not",
                    name));
  }
  if (same) return true;
  const Tried once = try_input(&lanes, whole, divided);
  whole.run_seed += 1;
  const Tried again = try_input(&lanes, whole, divided);
  if (compare(once, again, lanes).share > 0) {  // draws at random
    const EvalMode eval(model);
    if (try_both()) return true;
  }
  const std::string hint =
      found.of_loss > tolerance(lanes)
          ? "; if the loss is a sum, set .reduction = Reduction::kSum; if it divides by something "
            "else than rows, give a Loss that knows its weight"
          : "";
  refuse(fmt::format(
      "micro-batches would change the gradients: {} of {} rows differs by {:.2g} of its size "
      "between the whole and two parts, so something looks at several samples at once (batch norm, "
      "in-batch negatives, a reduction over dimension 0); use num = 1, or change it{}",
      found.what, rows, found.share, hint));
}

}  // namespace pipewright
