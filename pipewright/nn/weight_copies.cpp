#include "pipewright/nn/weight_copies.h"

namespace pipewright {

torch::Tensor WeightCopies::of(const torch::Tensor& weight, torch::ScalarType type) {
  if (weight.scalar_type() == type) return weight;
  Copy& held = copies_[weight.unsafeGetTensorImpl()];
  if (!held.copy.defined() || held.copy.scalar_type() != type)
    held = {weight, weight.detach().to(type)};
  return held.copy;
}

std::int64_t WeightCopies::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [weight, held] : copies_) bytes += static_cast<std::int64_t>(held.copy.nbytes());
  return bytes;
}

}  // namespace pipewright
