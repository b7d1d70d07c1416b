#pragma once

#include <torch/types.h>

#include <cstdint>
#include <unordered_map>
#include <utility>

namespace pipewright {

/// Copies of weights in the 16 bits that products run in under autocast. A weight's is made when it
/// is first asked for, and serves all micro-batches, their backwards and whatever is run again,
/// until forget(), which must come before weights change. Autocast would make one for every use,
/// and hold it for every micro-batch under way. One thread at a time.
class WeightCopies {
 public:
  /// The weight itself, where it is of that type.
  torch::Tensor of(const torch::Tensor& weight, torch::ScalarType type);

  void forget() { copies_.clear(); }
  std::int64_t bytes() const;

 private:
  struct Copy {
    torch::Tensor weight;  // held: another one could come to lie where it did
    torch::Tensor copy;
  };
  std::unordered_map<const void*, Copy> copies_;
};

}  // namespace pipewright
