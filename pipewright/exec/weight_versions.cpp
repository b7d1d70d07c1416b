#include "pipewright/exec/weight_versions.h"

#include <torch/csrc/autograd/variable.h>

#include "pipewright/base/error.h"

namespace pipewright {

WeightVersions::WeightVersions(Tensors parameters) : parameters_(std::move(parameters)) {
  Held first;
  for (const auto& parameter : parameters_) {
    first.values.push_back(parameter.detach());
    first.counters.push_back(torch::autograd::impl::version_counter(parameter));
  }
  held_.emplace(0, std::move(first));
}

void WeightVersions::take(const Held& held) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].set_data(held.values[i]);
    torch::autograd::impl::set_version_counter(parameters_[i], held.counters[i]);
  }
}

void WeightVersions::use(int version) {
  if (version == in_use_) return;
  const auto found = held_.find(version);
  internal_check(found != held_.end(), "a version of the weights is there while it is needed");
  take(found->second);
  in_use_ = version;
}

void WeightVersions::advance(int needed) {
  use(newest_);
  drop_before(needed);
  in_use_ = newest_ + 1;
  if (newest_ < needed) {
    auto last = held_.extract(newest_++);
    last.key() = newest_;
    held_.insert(std::move(last));
    return;
  }
  held_.emplace(newest_ + 1, copy_of(held_.at(newest_)));
  take(held_.at(++newest_));
}

WeightVersions::Held WeightVersions::copy_of(const Held& held) {
  const torch::NoGradGuard no_grad;
  Held copy;
  copy.values = std::exchange(spare_, {});
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (copy.values.size() <= i) copy.values.push_back(torch::empty_like(held.values[i]));
    copy.values[i].copy_(held.values[i]);
    copy.counters.emplace_back(held.counters[i].current_version() + 1);
  }
  return copy;
}

void WeightVersions::drop_before(int version) {
  while (held_.begin()->first < version && held_.begin()->first != newest_) {
    if (held_.begin()->first == in_use_) use(newest_);
    spare_ = std::move(held_.begin()->second.values);
    held_.erase(held_.begin());
  }
  if (held_.size() == 1) spare_.clear();
}

}  // namespace pipewright
