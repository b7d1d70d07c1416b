#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "pipewright/cost/profile.h"
#include "pipewright/nn/autocast.h"
#include "pipewright/nn/batch_norm.h"
#include "pipewright/nn/loss.h"
#include "pipewright/nn/sequence.h"
#include "pipewright/nn/weight_copies.h"
#include "pipewright/torch/stream.h"

namespace pipewright {

/// Bytes of the tensors' storages, each once.
std::int64_t bytes_of(const Tensors& tensors);

/// Which of a layer's tensors its own backward reads.
struct Needs {
  std::vector<char> inputs;
  std::vector<char> outputs;
};

/// One layer (the last one with its loss), run as the engine runs it, as often as asked and without
/// a trace. Allocations are charged to `slot`.
class LayerProbe {
 public:
  LayerProbe(const Layer& layer, std::size_t index, const DeviceStream& stream, Precision precision,
             int slot);

  void set_loss(const Loss* loss, Tensors targets) {
    loss_ = loss;
    targets_ = std::move(targets);
  }

  const Layer& layer() const { return layer_; }
  const DeviceStream& stream() const { return stream_; }

  /// Leaves that want a gradient where they can have one, but for the model's own inputs.
  Tensors make_leaves(const Tensors& input) const;

  /// What a backward starts from: the layer's outputs, or the loss.
  Tensors forward(const Tensors& leaves);

  /// What the last forward made, before the loss and detached; the probe forgets it.
  Tensors take_made() { return std::exchange(made_, {}); }

  /// What the layer makes of `input`, for the next one; `cost` gets the bytes.
  Tensors measure_bytes(const Tensors& input, LayerCost* cost);

  /// `outputs`: what it made of `input`, without those it stashes.
  Needs needs(const Tensors& input, const Tensors& outputs);

 private:
  std::int64_t held_after(const std::function<Tensors()>& make_input,
                          std::optional<std::size_t> keep);
  void measure_backward_bytes(const Tensors& leaves, Tensors outputs, LayerCost* cost);
  void measure_half_bytes(const Tensors& leaves, std::int64_t before, LayerCost* cost);
  std::int64_t live() const;
  void wait() const;

  const Layer& layer_;
  std::size_t index_;
  const DeviceStream& stream_;
  Precision precision_;
  int slot_;
  std::unique_ptr<DeferredBatchNorm> norms_;
  const Loss* loss_ = nullptr;
  Tensors targets_;
  Tensors made_;
  WeightCopies copies_;
};

}  // namespace pipewright
