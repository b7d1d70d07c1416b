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
/// leave a GPU waiting. So passes over one graph are timed as well, and the layers' times scaled to
/// add up to theirs.
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

  void run(const MeasureOptions& options);
  void start_recording(bool split);
  void run_uncut(const MeasureOptions& options);
  bool on_one_device() const;
  void uncut();
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
  State whole_;  // all layers in one graph
  std::map<std::string, torch::Tensor> skips_, skip_gradients_;
  Tensors last_gradients_;  // of the loss, or of what the last layer made
  bool hold_graphs_ = true;
};

}  // namespace pipewright
