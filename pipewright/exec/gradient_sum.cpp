#include "pipewright/exec/gradient_sum.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/exec/sparse_join.h"
#include "pipewright/torch/stream.h"

namespace pipewright {
namespace {

/// Whether a gradient may be written into: nobody else sees its memory, and it lies as the
/// parameter does.
bool may_keep(const torch::Tensor& gradient, const torch::Tensor& parameter) {
  return gradient.use_count() == 1 && gradient.storage().use_count() == 1 &&
         gradient.strides() == parameter.strides() && gradient.is_non_overlapping_and_dense() &&
         gradient.scalar_type() == parameter.scalar_type();
}

}  // namespace

GradientSum::GradientSum(const Tensors& parameters, int micro_batches, int lanes,
                         std::optional<c10::Stream> stream)
    : parameters_(parameters),
      micro_batches_(micro_batches),
      lanes_(lanes),
      stream_(stream),
      sums_(parameters.size()),
      sparse_(parameters.size()) {}

void GradientSum::go_on_from(const Tensors& sums) {
  for (std::size_t p = 0; p < sums.size(); ++p) {
    if (!sums[p].defined()) continue;
    if (sums[p].is_sparse()) {
      sparse_[p].push_back(sums[p]);
    } else {
      sums_[p] = sums[p].clone();
    }
  }
}

void GradientSum::check_running() const {
  if (aborted_) throw Error("lanes", "another lane failed");
}

std::optional<int> GradientSum::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(
      lock, [&] { return aborted_ || begun_ == micro_batches_ || begun_ < folded_ + 2 * lanes_; });
  check_running();
  if (begun_ == micro_batches_) return std::nullopt;
  return begun_++;
}

void GradientSum::add(int micro_batch, Tensors gradients) {
  Arrived one{std::move(gradients), {}};
  if (stream_) {
    one.made.emplace_back(stream_->device_type());
    one.made.back().record(current_stream(stream_->device()));
  }
  std::unique_lock lock(mutex_);
  waiting_.emplace(micro_batch, std::move(one));
  ++arrived_;
  if (arrived_ == micro_batches_) changed_.notify_all();
  if (folding_) return;
  folding_ = true;
  while (folded_ + lanes_ < micro_batches_ && waiting_.count(folded_) != 0) {
    Arrived first = std::move(waiting_.extract(folded_).mapped());
    lock.unlock();
    fold(&first);
    first = {};
    lock.lock();
    ++folded_;
    changed_.notify_all();
  }
  folding_ = false;
  changed_.notify_all();
}

void GradientSum::wait_for(const Arrived& arrived) const {
  if (!stream_) return;
  for (const c10::Event& made : arrived.made) made.block(*stream_);
  for (const torch::Tensor& gradient : arrived.gradients) {
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) {
      gradient._indices().record_stream(*stream_);
      gradient._values().record_stream(*stream_);
    } else {
      gradient.record_stream(*stream_);
    }
  }
}

/// Adds a micro-batch to the sums.
void GradientSum::fold(Arrived* arrived) {
  c10::OptionalStreamGuard guard;
  if (stream_) guard.reset_stream(*stream_);
  wait_for(*arrived);
  for (std::size_t p = 0; p < sums_.size(); ++p) {
    if (arrived->gradients[p].defined()) add_one(p, std::move(arrived->gradients[p]));
  }
}

void GradientSum::add_one(std::size_t parameter, torch::Tensor gradient) {
  const torch::NoGradGuard no_grad;
  torch::Tensor& sum = sums_[parameter];
  if (gradient.is_sparse()) {
    sparse_[parameter].push_back(std::move(gradient));
  } else if (sum.defined()) {
    sum.add_(gradient);
  } else if (may_keep(gradient, parameters_[parameter])) {
    sum = std::move(gradient);
  } else {
    sum = torch::empty_like(parameters_[parameter]).copy_(gradient);
  }
}

/// One sparse gradient of those of the micro-batches.
void GradientSum::join(std::size_t parameter) {
  const Tensors parts = std::exchange(sparse_[parameter], {});
  if (parts.empty()) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor& sum = sums_[parameter];
  const torch::Tensor joined = join_sparse(parts);
  sum = sum.defined() ? sum + joined : joined;  // some uses of it were dense
}

void GradientSum::add_tail() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return aborted_ || (arrived_ == micro_batches_ && !folding_); });
    check_running();
  }
  c10::OptionalStreamGuard guard;
  if (stream_) guard.reset_stream(*stream_);
  if (stream_) {
    for (const auto& [m, arrived] : waiting_) wait_for(arrived);
  }
  // Largest parameters would be best first; but they are few, and taken as a lane is free.
  for (std::size_t p = next_parameter_++; p < sums_.size(); p = next_parameter_++) {
    for (auto& [m, arrived] : waiting_) {
      if (arrived.gradients[p].defined()) add_one(p, std::move(arrived.gradients[p]));
    }
    join(p);
  }
}

void GradientSum::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

Tensors GradientSum::take() {
  waiting_.clear();
  return std::exchange(sums_, {});
}

}  // namespace pipewright
