#include "pipewright/profile/model_pass.h"

#include <array>

#include "pipewright/torch/out_of_memory.h"

namespace pipewright {
namespace {

template <typename Laps>
double median_of(const Laps& laps) {
  std::vector<double> seconds;
  for (const auto& lap : laps) seconds.push_back(lap.begin.seconds_until(lap.end));
  return median(std::move(seconds));
}

using Named = std::map<std::string, torch::Tensor>;

/// Appends what lies under these names.
void take(const std::vector<std::string>& names, Named* from, Tensors* tensors) {
  for (const auto& name : names) tensors->push_back(from->extract(name).mapped());
}

/// Puts the last tensors, as many as names, under them.
void put(const std::vector<std::string>& names, Tensors* tensors, Named* into) {
  for (std::size_t i = names.size(); i-- > 0;) {
    (*into)[names[i]] = std::move(tensors->back());
    tensors->pop_back();
  }
}

void scale(double forward, double backward, std::vector<LayerCost>* costs) {
  for (LayerCost& cost : *costs) {
    cost.forward_seconds *= forward;
    cost.backward_seconds *= backward;
    cost.backward_input_seconds *= backward;
    cost.backward_weight_seconds *= backward;
  }
}

}  // namespace

void ModelPass::measure(const MeasureOptions& options, std::vector<LayerCost>* costs) {
  try {
    run(options);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    forget();
    for (State& layer : layers_) layer = {};
    hold_graphs_ = false;
    run(options);
  }
  if (on_one_device()) run_pieces(options);
  double forward = 0, backward = 0;
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    LayerCost& cost = (*costs)[k];
    cost.forward_seconds = median_of(layers_[k].forward);
    cost.backward_seconds = median_of(layers_[k].whole);
    cost.backward_input_seconds = median_of(layers_[k].input_half);
    cost.backward_weight_seconds = median_of(layers_[k].weight_half);
    forward += cost.forward_seconds;
    backward += cost.backward_seconds;
  }
  double forward_of_pieces = 0, backward_of_pieces = 0;
  for (const Piece& piece : pieces_) {
    forward_of_pieces += median_of(piece.state.forward);
    backward_of_pieces += median_of(piece.state.whole);
  }
  if (!pieces_.empty()) scale(forward_of_pieces / forward, backward_of_pieces / backward, costs);
}

void ModelPass::run(const MeasureOptions& options) {
  // Halves after all whole ones: their bookkeeping takes the CPU longer, and a GPU would idle.
  for (const bool split : {false, true}) {
    for (int i = -options.warm_up; i < options.repeats; ++i) {
      if (i == 0) start_recording(split);
      forward();
      backward(split);
      if (split) {
        for (State& layer : layers_) layer.forward.pop_back();
      }
    }
    wait();
  }
}

/// Forgets what warmed up.
void ModelPass::start_recording(bool split) {
  wait();
  for (State& layer : layers_) {
    for (auto* laps : split ? std::array{&layer.input_half, &layer.weight_half}
                            : std::array{&layer.forward, &layer.whole})
      laps->clear();
  }
}

bool ModelPass::on_one_device() const {
  return std::all_of(probes_.begin(), probes_.end(), [&](const auto& probe) {
    return probe->stream().device() == probes_[0]->stream().device();
  });
}

void ModelPass::run_pieces(const MeasureOptions& options) {
  for (std::size_t count = 1; count < layers_.size(); count *= 2) {
    try {
      return run_pieces(options, count);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      forget();
    }
  }
}

void ModelPass::run_pieces(const MeasureOptions& options, std::size_t count) {
  const UseStream use(probes_[0]->stream());
  for (std::size_t p = 0; p < count; ++p) {
    pieces_.emplace_back();
    pieces_.back().first = p * layers_.size() / count;
    pieces_.back().last = (p + 1) * layers_.size() / count;
  }
  for (int i = -options.warm_up; i < options.repeats; ++i) {
    if (i == 0) {
      wait();
      for (Piece& piece : pieces_) piece.state = {};
    }
    forward_pieces();
    backward_pieces();
  }
  wait();
}

/// From its leaves and skips to its ends; returns its outputs, and leaves skips in skips_.
Tensors ModelPass::forward_piece(Piece* piece) {
  skips_ = piece->skips;
  Tensors x = piece->state.leaves;
  for (std::size_t k = piece->first; k < piece->last; ++k) {
    const Layer& layer = probes_[k]->layer();
    take(layer.options.pop, &skips_, &x);
    x = probes_[k]->forward(x);
    probes_[k]->take_made();
    put(layer.options.stash, &x, &skips_);
  }
  piece->state.ends = GraphEnds(x);
  return x;
}

void ModelPass::forward_pieces() {
  const DeviceStream& stream = probes_[0]->stream();
  Tensors x = inputs_;
  skips_.clear();
  for (Piece& piece : pieces_) {
    for (auto& [name, skip] : skips_) skip = skip.detach();
    piece.skips = skips_;
    piece.state.leaves = probes_[piece.first]->make_leaves(x);
    Moment begin(stream);
    x = forward_piece(&piece);
    piece.state.forward.push_back({std::move(begin), Moment(stream)});
    if (pieces_.size() == 1) continue;
    piece.state.ends = {};
    for (auto& output : x) output = output.detach();  // it would hold the graph
  }
  for (const auto& output : x) last_gradients_.push_back(torch::ones_like(output));
}

void ModelPass::backward_pieces() {
  Tensors gradients = std::exchange(last_gradients_, {});
  for (std::size_t p = pieces_.size(); p-- > 0;) {
    Piece& piece = pieces_[p];
    if (pieces_.size() > 1) forward_piece(&piece);
    skips_.clear();
    piece.skips.clear();
    gradients =
        backward_layer(&piece.state, probes_[0]->stream(), /*split=*/false, std::move(gradients));
  }
}

void ModelPass::forward() {
  Tensors x = inputs_;
  for (std::size_t k = 0; k < probes_.size(); ++k) {
    LayerProbe& probe = *probes_[k];
    const UseStream use(probe.stream());
    take(probe.layer().options.pop, &skips_, &x);
    layers_[k].leaves = probe.make_leaves(arrived(k, k == 0 ? k : k - 1, std::move(x)));
    Moment begin(probe.stream());
    Tensors outputs = probe.forward(layers_[k].leaves);
    layers_[k].forward.push_back({std::move(begin), Moment(probe.stream())});
    x = probe.take_made();
    put(probe.layer().options.stash, &x, &skips_);
    if (k + 1 == probes_.size()) {
      for (const auto& output : outputs) last_gradients_.push_back(torch::ones_like(output));
    }
    if (hold_graphs_) layers_[k].ends = GraphEnds(outputs);
  }
}

void ModelPass::backward(bool split) {
  Tensors gradients = std::exchange(last_gradients_, {});
  for (std::size_t k = probes_.size(); k-- > 0;) {
    LayerProbe& probe = *probes_[k];
    const UseStream use(probe.stream());
    if (!hold_graphs_) {
      layers_[k].ends = GraphEnds(probe.forward(layers_[k].leaves));
      probe.take_made();
    }
    take(probe.layer().options.stash, &skip_gradients_, &gradients);
    gradients = arrived(k, k + 1, std::move(gradients));
    gradients = backward_layer(&layers_[k], probe.stream(), split, std::move(gradients));
    put(probe.layer().options.pop, &gradients, &skip_gradients_);
  }
}

Tensors ModelPass::backward_layer(State* layer, const DeviceStream& stream, bool split,
                                  Tensors gradients) {
  const GraphEnds ends = std::exchange(layer->ends, {});
  const Tensors leaves = std::exchange(layer->leaves, {});
  Moment begin(stream);
  if (!split) {
    Tensors result = pipewright::backward(ends, std::move(gradients), leaves).input_gradients;
    layer->whole.push_back({std::move(begin), Moment(stream)});
    return result;
  }
  InputHalf half = backward_input(ends, std::move(gradients), leaves);
  layer->input_half.push_back({std::move(begin), Moment(stream)});
  Moment weights_begin(stream);
  half.weight_half.run();
  layer->weight_half.push_back({std::move(weights_begin), Moment(stream)});
  return std::move(half.input_gradients);
}

/// Tensors of layer `from`'s device on that of layer `at`.
Tensors ModelPass::arrived(std::size_t at, std::size_t from, Tensors tensors) const {
  if (from >= probes_.size()) return tensors;
  const torch::Device device = probes_[at]->stream().device();
  if (probes_[from]->stream().device() != device) wait();  // streams do not wait for each other
  for (auto& tensor : tensors) {
    if (tensor.defined()) tensor = tensor.to(device);
  }
  return tensors;
}

void ModelPass::forget() {
  pieces_.clear();
  for (const auto& probe : probes_) probe->take_made();
  skips_.clear();
  skip_gradients_.clear();
  last_gradients_.clear();
}

void ModelPass::wait() const {
  for (const auto& probe : probes_) probe->stream().synchronize(kGpuDeadline);
}

}  // namespace pipewright
