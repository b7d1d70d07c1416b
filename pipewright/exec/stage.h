#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipewright/nn/autocast.h"
#include "pipewright/nn/backward.h"
#include "pipewright/nn/batch_norm.h"
#include "pipewright/nn/loss.h"
#include "pipewright/nn/sequence.h"

namespace pipewright {

/// What a forward of one micro-batch needs to know beside its tensors.
struct ForwardContext {
  std::uint64_t run_seed = 0;
  std::int64_t step = 0;
  int micro_batch = 0;
  int global_micro_batch = 0;  // counted over all replicas: what random draws depend on
  bool training = true;        // batch norm collects statistics, dropout is seeded
  bool keep_graph = true;      // off: no gradient will be asked for, or it is recomputed first
  bool recomputing = false;
  torch::Device device = torch::kCPU;
  bool check_finite = false;     // of every layer's outputs
  bool watch_gradients = false;  // and of their gradients
};

/// A parameter that several layers use. Each use has a gradient of its own; they are summed in
/// layer order.
struct TiedUse {
  std::size_t layer = 0;
  torch::Tensor parameter;
  torch::Tensor gradient;  // summed over micro-batches, in their order
};

/// What a segment keeps of one micro-batch between its forward and its backward.
struct SegmentRun {
  Tensors inputs;  // leaves
  Tensors pops;    // leaves, in the order of Segment::pops
  GraphEnds ends;  // of outputs, then stashes
  WeightHalf weight_half;
};

/// What a segment's forward makes.
struct SegmentOutputs {
  Tensors outputs;
  Tensors stashes;  // in the order of Segment::stashes
};

/// Layers that share an autograd graph. A stage is one segment, but where a tied parameter is used:
/// there each use is a segment of its own in every partition, so that its gradients add up in one
/// order everywhere.
class Segment {
 public:
  Segment(const Sequence& model, std::size_t first, std::size_t last, std::vector<TiedUse*> tied);

  const std::vector<std::string>& pops() const { return pops_; }
  const std::vector<std::string>& stashes() const { return stashes_; }

  /// From the inputs and pops of `run`. Its ends are the caller's to set.
  SegmentOutputs forward(const ForwardContext& context, const SegmentRun& run) const;

  /// From the gradients of outputs and stashes (undefined: none) to those of inputs, then pops.
  /// With `split`, the weights' gradients wait in run->weight_half for backward_weight().
  Tensors backward(SegmentRun* run, Tensors output_gradients, bool split) const;
  void backward_weight(SegmentRun* run) const;

  bool has_norms() const;
  /// See DeferredBatchNorm.
  void collected_norms(std::vector<double>* numbers) const;
  std::span<const double> add_norms(std::span<const double> numbers);
  void finish_mini_batch();
  void abandon();

 private:
  Tensors run_layer(const ForwardContext& context, std::size_t index, const Tensors& x) const;
  void add_tied(const Tensors& gradients) const;

  const Sequence* model_;
  std::size_t first_;
  std::size_t last_;
  std::vector<std::string> pops_;     // from outside the segment
  std::vector<std::string> stashes_;  // for outside
  std::vector<TiedUse*> tied_;
  Tensors tied_parameters_;
  std::vector<std::unique_ptr<DeferredBatchNorm>> batch_norms_;  // by layer
};

}  // namespace pipewright
