#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pipewright/nn/backward.h"
#include "pipewright/profile/layer_probe.h"
#include "pipewright/profile/measure.h"
#include "pipewright/profile/moment.h"

namespace pipewright {

/// Times layers within passes over the whole model, as training runs them. A layer that is timed
/// alone, again and again, finds its input and weights in the caches and a GPU that is not hot:
/// then chains on a CPU were predicted up to a fifth too fast. Nothing waits within a pass, so that
/// launches run ahead as they do in training.
///
/// Cut at every layer, a backward takes the CPU longer than in one go: small micro-batches then
/// leave a GPU waiting. So passes over one graph, or as few as memory has room for, are timed as
/// well, and the layers' times scaled to add up to theirs.
class ModelPass {
 public:
  /// `probes`: of all layers in their order.
  ModelPass(std::vector<std::unique_ptr<LayerProbe>>* probes, Tensors inputs)
      : probes_(*probes), inputs_(std::move(inputs)), layers_(probes->size()) {}

  /// Medians of the options' repeats. Where the graph of the whole micro-batch does not fit into
  /// memory, each layer is run again before its backward, beside the clock.
  void measure(const MeasureOptions& options, std::vector<LayerCost>* costs);

 private:
  struct Lap {
    Moment begin;
    Moment end;
  };
  /// One layer between its forward and its backward, and its laps so far.
  struct State {
    Tensors leaves;
    GraphEnds ends;
    std::vector<Lap> forward, whole, input_half, weight_half;
  };

  /// Layers [first, last) in one graph.
  struct Piece {
    std::size_t first = 0;
    std::size_t last = 0;
    std::map<std::string, torch::Tensor> skips;  // from before it, as constants
    State state;
  };

  void run(const MeasureOptions& options);
  void start_recording(bool split);
  void run_pieces(const MeasureOptions& options);
  void run_pieces(const MeasureOptions& options, std::size_t count);
  bool on_one_device() const;
  void forward_pieces();
  void backward_pieces();
  Tensors forward_piece(Piece* piece);
  void forward();
  void backward(bool split);
  static Tensors backward_layer(State* layer, const DeviceStream& stream, bool split,
                                Tensors gradients);
  Tensors arrived(std::size_t at, std::size_t from, Tensors tensors) const;
  void forget();
  void wait() const;

  std::vector<std::unique_ptr<LayerProbe>>& probes_;
  Tensors inputs_;
  std::vector<State> layers_;
  std::vector<Piece> pieces_;
  std::map<std::string, torch::Tensor> skips_, skip_gradients_;
  Tensors last_gradients_;  // of the loss, or of what the last layer made
  bool hold_graphs_ = true;
};

}  // namespace pipewright
