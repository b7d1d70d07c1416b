#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace pipewright {

/// Batch norm over micro-batches: a layer normalises by micro-batch, its running statistics move
/// once a mini-batch, by the statistics of the whole of it, as if it had been one batch.
///
///     DeferredBatchNorm norms(layer);
///     for each micro-batch m: { DeferredBatchNorm::MicroBatch scope(norms, m, false);
///                               layer.forward(input); }
///     norms.finish_mini_batch();
///
/// Handled: torch::nn::BatchNorm1d, 2d, 3d anywhere inside the layer, in training mode with
/// track_running_stats; with it off, or in eval mode, nothing changes. Also torch::batch_norm and
/// functional::batch_norm over running statistics that are buffers of the layer (register_buffer),
/// with the momentum of the call. A norm called n times in one forward moves n times, in order.
/// Not handled: functional batch norm over tensors that are no buffers of the layer, and
/// InstanceNorm with track_running_stats, which move at every call, recomputed ones included; a
/// counter that a layer keeps itself; a norm that several layers share.
///
/// One thread at a time: the layer's. Between scopes any other may take over.
class DeferredBatchNorm {
 public:
  /// Finds the layer's norms and buffers. The layer outlives this object, and its norms are not
  /// reset() meanwhile; moving it to another device or dtype is fine.
  explicit DeferredBatchNorm(torch::nn::Module& layer);
  DeferredBatchNorm(DeferredBatchNorm&& other) noexcept;
  DeferredBatchNorm& operator=(DeferredBatchNorm&& other) noexcept;
  DeferredBatchNorm(const DeferredBatchNorm&) = delete;
  DeferredBatchNorm& operator=(const DeferredBatchNorm&) = delete;
  ~DeferredBatchNorm();

  /// Whether there is something to defer. If not, scopes do nothing, and may be left out.
  bool any() const;

  /// Around one forward of the layer for one micro-batch, on the thread that runs it. Inside, the
  /// running statistics and num_batches_tracked do not change. A forward that throws leaves
  /// nothing. A micro-batch that is forwarded again replaces what it gave before; with
  /// `recomputing` it gives nothing (after finish_mini_batch() too).
  class MicroBatch {
   public:
    MicroBatch(DeferredBatchNorm& norms, std::int64_t micro_batch, bool recomputing);
    ~MicroBatch();
    MicroBatch(const MicroBatch&) = delete;
    MicroBatch& operator=(const MicroBatch&) = delete;
    MicroBatch(MicroBatch&&) = delete;
    MicroBatch& operator=(MicroBatch&&) = delete;

   private:
    friend struct BatchNormOverride;
    struct Recording;
    std::unique_ptr<Recording> recording_;  // null where there is nothing to defer
  };

  /// Appends what was collected so far, as numbers; and adds what another replica of the layer
  /// wrote so, whose micro-batches have other numbers. Returns what follows it.
  void write_collected(std::vector<double>* numbers) const;
  std::span<const double> add_collected(std::span<const double> numbers);

  /// Merges what the micro-batches gave, in the order of their numbers whatever order they ran in,
  /// and moves the running statistics and num_batches_tracked, in place: the buffers remain the
  /// same tensors. Without a forward since the last call, does nothing.
  void finish_mini_batch();

  /// Drops what was collected, after a failure.
  void abandon();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pipewright
