#include "pipewright/train/reducer.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace pipewright {
namespace {

/// Large enough that a message's latency does not count, small enough that the first leaves early.
constexpr std::int64_t kBucketBytes = std::int64_t{4} << 20;

}  // namespace

/// Called after something was added to a parameter's gradient.
class Reducer::Hook : public torch::autograd::FunctionPostHook {
 public:
  Hook(Reducer* reducer, std::size_t bucket) : reducer_(reducer), bucket_(bucket) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& /*inputs*/) override {
    if (reducer_->listening_) reducer_->arrived(bucket_);
    return outputs;
  }

 private:
  Reducer* reducer_;
  std::size_t bucket_;
};

Reducer::Reducer(Replicas* replicas, const Parameters& early, const Parameters& late)
    : replicas_(replicas) {
  add_buckets(early);
  num_early_ = buckets_.size();
  add_buckets(late);
  for (std::size_t b = 0; b < num_early_; ++b) {
    for (const auto& parameter : buckets_[b].parameters) {
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameter));
      accumulators_.back()->add_post_hook(std::make_unique<Hook>(this, b));
    }
  }
}

Reducer::~Reducer() {
  for (auto& accumulator : accumulators_) {
    auto& hooks = accumulator->post_hooks();
    std::erase_if(hooks,
                  [](const auto& hook) { return dynamic_cast<Hook*>(hook.get()) != nullptr; });
  }
}

/// From the last parameter to the first, as backwards make them; of one dtype each.
void Reducer::add_buckets(const Parameters& parameters) {
  std::int64_t bytes = kBucketBytes;
  for (auto item = parameters.named.rbegin(); item != parameters.named.rend(); ++item) {
    const torch::Tensor& parameter = item->second;
    const auto size = static_cast<std::int64_t>(parameter.nbytes());
    const bool fits = bytes + size <= kBucketBytes && !buckets_.empty() &&
                      buckets_.back().parameters[0].dtype() == parameter.dtype();
    if (!fits) {
      buckets_.emplace_back();
      bytes = 0;
    }
    buckets_.back().parameters.push_back(parameter);
    bytes += size;
  }
}

void Reducer::start() {
  num_started_ = 0;
  for (Bucket& bucket : buckets_) bucket.num_missing = bucket.parameters.size();
  listening_ = true;
}

void Reducer::arrived(std::size_t bucket) {
  if (--buckets_[bucket].num_missing == 0) start_ready();
}

void Reducer::start_ready() {
  while (num_started_ < num_early_ && buckets_[num_started_].num_missing == 0)
    start_bucket(&buckets_[num_started_++]);
}

void Reducer::flush() {
  if (!listening_) start();
  listening_ = false;
  while (num_started_ < num_early_) start_bucket(&buckets_[num_started_++]);
}

void Reducer::finish() {
  if (num_started_ < num_early_ || listening_) flush();
  while (num_started_ < buckets_.size()) start_bucket(&buckets_[num_started_++]);
  for (Bucket& bucket : buckets_) {
    replicas_->finish(bucket.sum);
    take(bucket);
    bucket.sum = {};
  }
  num_started_ = 0;
}

void Reducer::abandon() {
  listening_ = false;
  num_started_ = 0;
  for (Bucket& bucket : buckets_) bucket.sum = {};
}

/// The gradients, and behind them for each whether there is one.
void Reducer::start_bucket(Bucket* bucket) {
  const torch::NoGradGuard no_grad;
  std::int64_t size = static_cast<std::int64_t>(bucket->parameters.size());
  for (const auto& parameter : bucket->parameters) size += parameter.numel();
  const auto dtype = bucket->parameters[0].scalar_type();
  const auto device = replicas_->sum_device(bucket->parameters[0].device());
  torch::Tensor flat = torch::zeros({size}, torch::dtype(dtype).device(device));
  std::int64_t at = 0;
  std::int64_t flag = size - static_cast<std::int64_t>(bucket->parameters.size());
  for (const auto& parameter : bucket->parameters) {
    if (parameter.grad().defined()) {
      flat.slice(0, at, at + parameter.numel()).view(parameter.sizes()).copy_(parameter.grad());
      flat[flag] = 1;
    }
    at += parameter.numel();
    ++flag;
  }
  bucket->sum = replicas_->start_sum(std::move(flat));
}

void Reducer::take(const Bucket& bucket) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& flat = bucket.sum.flat;
  std::int64_t at = 0;
  const auto count = static_cast<std::int64_t>(bucket.parameters.size());
  const torch::Tensor flags = flat.slice(0, flat.numel() - count).to(torch::kCPU, torch::kFloat64);
  const double* flag = flags.data_ptr<double>();
  for (const auto& parameter : bucket.parameters) {
    const auto sum = flat.slice(0, at, at + parameter.numel()).view(parameter.sizes());
    at += parameter.numel();
    if (*flag++ == 0) continue;  // nobody has one
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    parameter.mutable_grad().copy_(sum);
  }
}

}  // namespace pipewright
