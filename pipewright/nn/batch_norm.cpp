#include "pipewright/nn/batch_norm.h"

#include <ATen/ops/batch_norm_compositeimplicitautograd_dispatch.h>

#include <algorithm>
#include <exception>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "pipewright/base/error.h"
#include "pipewright/torch/compat.h"

// Why the operator is overridden, and not the module's buffers swapped for a forward: merging needs
// the number of values a channel had, which only the operator sees (C++ modules have no hooks, and
// the running statistics do not tell). It is `aten::batch_norm` that is overridden, the composite
// operator above native, cuDNN and MIOpen kernels: one signature, on every device and version, and
// the functional form and TorchScript pass through it too. Only the counter is taken from the
// module, since nothing but the module's forward touches it.

namespace pipewright {

namespace {

using at::Tensor;

/// What one call of batch norm saw, by channel.
struct Statistics {
  std::int64_t count = 0;  // values a channel
  Tensor mean;             // (C)
  Tensor variance;         // (C), unbiased
};

/// `mean` and `variance` as the kernel left them, in the type of the running statistics. Where that
/// is a 16-bit one, means rounded to 8 bits would tear the micro-batches apart and add to the
/// merged variance, so a second pass over the input takes them in float32. Only modules moved as a
/// whole to such a type pay for it.
Statistics statistics(const Tensor& input, const Tensor& mean, const Tensor& variance) {
  const std::int64_t count = input.numel() / input.size(1);
  if (mean.element_size() > 2) return {count, mean, variance};
  const torch::NoGradGuard no_grad;
  std::vector<std::int64_t> dimensions = {0};
  for (std::int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  auto [var, exact_mean] = at::var_mean(input.to(at::kFloat), dimensions, /*unbiased=*/true);
  return {count, std::move(exact_mean), std::move(var)};
}

struct Call {
  Tensor running_mean;
  Tensor running_var;
  double momentum = 0;
  Statistics statistics;
};

/// A stock module, by the members that matter here.
struct Norm {
  const torch::nn::Module* module = nullptr;
  const torch::nn::BatchNormOptions* options = nullptr;
  const Tensor* running_mean = nullptr;
  Tensor* num_batches_tracked = nullptr;
};

template <typename BatchNorm>
void add_norm(torch::nn::Module& module, std::vector<Norm>& norms) {
  auto* norm = dynamic_cast<BatchNorm*>(&module);
  if (norm == nullptr || !norm->running_mean.defined()) return;
  norms.push_back({norm, &norm->options, &norm->running_mean, &norm->num_batches_tracked});
}

std::vector<Norm> find_norms(torch::nn::Module& layer) {
  std::vector<Norm> norms;
  std::unordered_set<const torch::nn::Module*> seen;  // a module may be registered twice
  const auto visit = [&](torch::nn::Module& module) {
    if (!seen.insert(&module).second) return;
    add_norm<torch::nn::BatchNorm1dImpl>(module, norms);
    add_norm<torch::nn::BatchNorm2dImpl>(module, norms);
    add_norm<torch::nn::BatchNorm3dImpl>(module, norms);
  };
  visit(layer);  // modules(true) would want it to be held by a shared_ptr
  for (const auto& module : layer.modules(/*include_self=*/false)) visit(*module);
  return norms;
}

// ---- Merging ----

/// Mean and sum of squared differences from it, in float64.
struct Moments {
  double count = 0;
  Tensor mean;     // (C)
  Tensor squares;  // (C)
};

Moments moments(const Statistics& seen) {
  const auto count = static_cast<double>(seen.count);
  Tensor mean = seen.mean.to(at::kDouble);
  // The unbiased variance of a single value is 0 / 0.
  Tensor squares =
      seen.count == 1 ? at::zeros_like(mean) : seen.variance.to(at::kDouble) * (count - 1);
  return {count, std::move(mean), std::move(squares)};
}

/// Chan, Golub, LeVeque 1979: exact, and stable where the difference of squares is not.
void merge(Moments& into, const Moments& other) {
  const double count = into.count + other.count;
  const Tensor delta = other.mean - into.mean;
  into.squares = into.squares + other.squares + delta * delta * (into.count * other.count / count);
  into.mean = into.mean + delta * (other.count / count);
  into.count = count;
}

void move_towards(const Tensor& running, const Tensor& value, double factor) {
  running.copy_(running.to(at::kDouble) * (1 - factor) + value * factor);
}

/// What one pair of running statistics has collected in a mini-batch.
struct Collected {
  Tensor running_mean;
  Tensor running_var;
  double momentum = 0;
  std::map<std::int64_t, std::vector<Statistics>> micro_batches;  // calls of each, in order

  std::size_t num_calls() const {
    std::size_t calls = 0;
    for (const auto& [_, of_calls] : micro_batches) calls = std::max(calls, of_calls.size());
    return calls;
  }

  /// Of the call'th call, over the micro-batches in order.
  Moments merged(std::size_t call) const {
    Moments all;
    for (const auto& [_, of_calls] : micro_batches) {
      if (call >= of_calls.size()) continue;
      const Moments one = moments(of_calls[call]);
      if (all.count > 0) merge(all, one);
      if (all.count == 0) all = one;
    }
    return all;
  }

  void apply(std::size_t call, double factor) const {
    const Moments all = merged(call);
    move_towards(running_mean, all.mean, factor);
    move_towards(running_var, all.squares / (all.count - 1), factor);
  }
};

/// Counts a mini-batch, and says how far it moves the running statistics: by the momentum, or
/// without one so that they are the mean over all mini-batches.
double count_mini_batch(const Norm& norm) {
  const Tensor& counter = *norm.num_batches_tracked;
  if (counter.defined()) counter.add_(1);
  if (norm.options->momentum().has_value()) return norm.options->momentum().value();
  return counter.defined() ? 1.0 / counter.item<double>() : 0.0;
}

}  // namespace

struct DeferredBatchNorm::State {
  std::vector<Norm> norms;
  std::unordered_set<const c10::TensorImpl*> buffers;
  std::vector<const c10::TensorImpl*> in_order;                     // the same in every process
  std::unordered_map<const c10::TensorImpl*, Collected> collected;  // by running_mean

  std::vector<Collected*> collected_in_order() {
    std::vector<Collected*> all;
    for (const auto* buffer : in_order) {
      const auto found = collected.find(buffer);
      if (found != collected.end()) all.push_back(&found->second);
    }
    return all;
  }

  const Norm* norm_of(const c10::TensorImpl* running_mean) const {
    for (const Norm& norm : norms) {
      if (norm.running_mean->unsafeGetTensorImpl() == running_mean) return &norm;
    }
    return nullptr;
  }

  void collect(std::int64_t micro_batch, std::vector<Call> calls) {
    for (auto& [_, entry] : collected) entry.micro_batches.erase(micro_batch);
    for (Call& call : calls) {
      Collected& entry = collected[call.running_mean.unsafeGetTensorImpl()];
      entry.running_mean = call.running_mean;
      entry.running_var = call.running_var;
      entry.momentum = call.momentum;
      entry.micro_batches[micro_batch].push_back(std::move(call.statistics));
    }
  }
};

/// What a scope has seen so far, and the counters it has taken from the modules.
struct DeferredBatchNorm::MicroBatch::Recording {
  State& state;
  std::int64_t micro_batch;
  bool recomputing;
  Recording* outer;
  int exceptions = std::uncaught_exceptions();
  std::vector<std::pair<Tensor*, Tensor>> counters = {};  // the member, and what it held
  std::vector<Call> calls = {};

  bool defers(const compat::Optional<Tensor>& mean, const compat::Optional<Tensor>& var) const {
    return mean.has_value() && mean->defined() && var.has_value() && var->defined() &&
           state.buffers.contains(mean->unsafeGetTensorImpl());
  }
};

/// The kernel in the place of `aten::batch_norm`'s own.
struct BatchNormOverride {
  using Recording = DeferredBatchNorm::MicroBatch::Recording;
  using OptionalTensor = compat::Optional<Tensor>;

  static Recording*& current() {
    thread_local Recording* recording = nullptr;
    return recording;
  }

  static Tensor call(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                     const OptionalTensor& running_mean, const OptionalTensor& running_var,
                     bool training, double momentum, double eps, bool cudnn_enabled) {
    namespace stock = at::compositeimplicitautograd;
    Recording* recording = current();
    if (!training || recording == nullptr || !recording->defers(running_mean, running_var)) {
      return stock::batch_norm(input, weight, bias, running_mean, running_var, training, momentum,
                               eps, cudnn_enabled);
    }
    // With momentum 1 the kernel leaves the micro-batch's own statistics: no second pass over the
    // input. A recomputed forward goes the same way, so that it rounds the same way.
    const Tensor mean = at::zeros_like(*running_mean);
    const Tensor var = at::zeros_like(*running_var);
    Tensor output = stock::batch_norm(input, weight, bias, mean, var, training, /*momentum=*/1.0,
                                      eps, cudnn_enabled);
    // Of no rows there are no statistics.
    if (!recording->recomputing && input.numel() > 0) {
      recording->calls.push_back(
          {*running_mean, *running_var, momentum, statistics(input, mean, var)});
    }
    return output;
  }

  /// Once a process; stays until its end.
  static void install() {
    [[maybe_unused]] static const auto* library = [] {
      const compat::SilentWarnings silent;
      auto* aten =
          new torch::Library(torch::Library::IMPL, "aten",
                             c10::DispatchKey::CompositeImplicitAutograd, __FILE__, __LINE__);
      aten->impl("batch_norm", TORCH_FN(call));
      return aten;
    }();
  }
};

DeferredBatchNorm::DeferredBatchNorm(torch::nn::Module& layer) : state_(std::make_unique<State>()) {
  state_->norms = find_norms(layer);
  for (const Tensor& buffer : layer.buffers()) {
    if (buffer.defined() && buffer.is_floating_point()) {
      state_->buffers.insert(buffer.unsafeGetTensorImpl());
      state_->in_order.push_back(buffer.unsafeGetTensorImpl());
    }
  }
  if (any()) BatchNormOverride::install();
}

DeferredBatchNorm::DeferredBatchNorm(DeferredBatchNorm&& other) noexcept = default;
DeferredBatchNorm& DeferredBatchNorm::operator=(DeferredBatchNorm&& other) noexcept = default;
DeferredBatchNorm::~DeferredBatchNorm() = default;

bool DeferredBatchNorm::any() const { return !state_->buffers.empty(); }

DeferredBatchNorm::MicroBatch::MicroBatch(DeferredBatchNorm& norms, std::int64_t micro_batch,
                                          bool recomputing) {
  if (!norms.any()) return;
  Recording*& current = BatchNormOverride::current();
  recording_.reset(new Recording{*norms.state_, micro_batch, recomputing, current});
  for (const Norm& norm : norms.state_->norms) {
    if (!norm.module->is_training()) continue;
    // A module without a counter does not count. (On CUDA this also spares a wait: without a
    // momentum the module reads the counter at every call.)
    recording_->counters.emplace_back(norm.num_batches_tracked,
                                      std::exchange(*norm.num_batches_tracked, Tensor()));
  }
  current = recording_.get();
}

DeferredBatchNorm::MicroBatch::~MicroBatch() {
  if (recording_ == nullptr) return;
  BatchNormOverride::current() = recording_->outer;
  for (auto& [member, tensor] : recording_->counters) *member = std::move(tensor);
  const bool failed = std::uncaught_exceptions() > recording_->exceptions;
  if (failed || recording_->recomputing) return;
  recording_->state.collect(recording_->micro_batch, std::move(recording_->calls));
}

void DeferredBatchNorm::finish_mini_batch() {
  const torch::NoGradGuard no_grad;
  for (const auto& [running_mean, entry] : state_->collected) {
    const Norm* norm = state_->norm_of(running_mean);
    for (std::size_t call = 0; call < entry.num_calls(); ++call) {
      entry.apply(call, norm != nullptr ? count_mini_batch(*norm) : entry.momentum);
    }
  }
  state_->collected.clear();
}

// As numbers: how many running statistics; of each how many calls; of each call the micro-batch,
// the count, and by channel means and variances.

void DeferredBatchNorm::write_collected(std::vector<double>* numbers) const {
  const auto append = [&](const Tensor& values) {
    const Tensor doubles = values.to(at::kDouble).cpu().contiguous();
    const auto* first = doubles.data_ptr<double>();
    numbers->insert(numbers->end(), first, first + doubles.numel());
  };
  numbers->push_back(static_cast<double>(state_->collected.size()));
  for (const Collected* entry : state_->collected_in_order()) {
    std::size_t calls = 0;
    for (const auto& [number, of_calls] : entry->micro_batches) calls += of_calls.size();
    numbers->push_back(static_cast<double>(calls));
    for (const auto& [number, of_calls] : entry->micro_batches) {
      for (const Statistics& seen : of_calls) {
        numbers->push_back(static_cast<double>(number));
        numbers->push_back(static_cast<double>(seen.count));
        append(seen.mean);
        append(seen.variance);
      }
    }
  }
}

std::span<const double> DeferredBatchNorm::add_collected(std::span<const double> numbers) {
  const auto next = [&] {
    const double number = numbers[0];
    numbers = numbers.subspan(1);
    return number;
  };
  const auto next_tensor = [&](const Tensor& like) {
    const auto size = static_cast<std::size_t>(like.numel());
    Tensor values = at::empty({like.numel()}, at::kDouble);
    std::copy_n(numbers.begin(), size, values.data_ptr<double>());
    numbers = numbers.subspan(size);
    return values.to(like.device());
  };
  internal_check(next() == static_cast<double>(state_->collected.size()),
                 "replicas of a layer have the same batch norms");
  for (Collected* entry : state_->collected_in_order()) {
    for (auto calls = next(); calls > 0; --calls) {
      const auto number = static_cast<std::int64_t>(next());
      Statistics seen;
      seen.count = static_cast<std::int64_t>(next());
      seen.mean = next_tensor(entry->running_mean);
      seen.variance = next_tensor(entry->running_mean);
      entry->micro_batches[number].push_back(std::move(seen));
    }
  }
  return numbers;
}

void DeferredBatchNorm::abandon() { state_->collected.clear(); }

}  // namespace pipewright
