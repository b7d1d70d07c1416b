#pragma once

#include <memory>
#include <vector>

#include "pipewright/nn/tensors.h"
#include "pipewright/train/grid.h"

namespace pipewright {

/// The processes that hold the same stages: what they do together. All replicas make the same calls
/// in the same order. Throws TransportError where another one fails or does not come in time.
class Replicas {
 public:
  /// `grid` has more than one, and outlives this.
  Replicas(const Grid& grid, const Strategy& strategy);
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  int size() const { return grid_.replicas; }
  int number() const { return grid_.replica; }

  /// Every replica's numbers, by replica.
  std::vector<std::vector<double>> gather(const std::vector<double>& numbers);

  /// The sum over the replicas, in their order.
  std::vector<double> sum(const std::vector<double>& numbers);

  /// The tensors get the values of those of replica `root`. Tensors of one dtype travel together.
  void broadcast(const Tensors& tensors, int root);

  /// Where a flat tensor must be for its sum, whose values are on `device`.
  torch::Device sum_device(torch::Device device) const {
    return sums_ ? device : torch::Device(torch::kCPU);
  }

  /// A sum that is under way: finish() waits for it.
  struct Pending {
    torch::Tensor flat;  // on the device of sums
    c10::intrusive_ptr<c10d::Work> work;
  };
  /// Starts to sum a flat tensor over the replicas, in place.
  Pending start_sum(torch::Tensor flat);
  void finish(const Pending& pending);

 private:
  Tensors gather_equal(torch::Tensor own);
  void wait(const c10::intrusive_ptr<c10d::Work>& work);
  [[noreturn]] void give_up(const std::string& why);

  const Grid& grid_;
  std::chrono::duration<double> deadline_;
  c10::intrusive_ptr<compat::ProcessGroup> group_;
  c10::intrusive_ptr<compat::ProcessGroup> sums_;  // of GPUs, over NCCL; null: over Gloo
};

}  // namespace pipewright
