#include "pipewright/recompute/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/base/json.h"

namespace pipewright {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  // sums over thousands of layers fit
constexpr int kMostLayers = 2000;

ChainLayer parse_layer(const nlohmann::json& value, std::string_view where, std::size_t index) {
  const JsonObject object(value, where, fmt::format("layers[{}]", index));
  object.refuse_unknown({"name", "forward", "backward", "output_bytes", "saved_bytes",
                         "forward_temp_bytes", "backward_temp_bytes"});
  ChainLayer layer;
  layer.forward = object.non_negative("forward");
  layer.backward = object.non_negative_or("backward", 2 * layer.forward);
  layer.output_bytes = object.integer("output_bytes", 0, kMostBytes);
  layer.saved_bytes = object.integer_or("saved_bytes", 0, kMostBytes, layer.output_bytes);
  layer.forward_temp_bytes = object.integer_or("forward_temp_bytes", 0, kMostBytes, 0);
  layer.backward_temp_bytes = object.integer_or("backward_temp_bytes", 0, kMostBytes, 0);
  if (layer.saved_bytes < layer.output_bytes) {
    throw InvalidArgument(
        where,
        fmt::format("layers[{}]: saved_bytes {} is less than output_bytes {}, which it holds",
                    index, layer.saved_bytes, layer.output_bytes));
  }
  return layer;
}

}  // namespace

Chain parse_chain(std::string_view json, std::string_view where) {
  const nlohmann::json root = parse_json(json, where);
  const JsonObject object(root, where, "chain");
  object.refuse_unknown({"layers"});
  const nlohmann::json& layers = object.array("layers");
  if (layers.empty()) throw InvalidArgument(where, "the chain has no layers");
  if (layers.size() > kMostLayers) {
    throw InvalidArgument(
        where, fmt::format("the chain has {} layers; {} are the most", layers.size(), kMostLayers));
  }
  Chain chain;
  for (std::size_t i = 0; i < layers.size(); ++i)
    chain.layers.push_back(parse_layer(layers[i], where, i));
  return chain;
}

std::string_view op_name(LayerOp op) {
  constexpr std::array<std::string_view, 4> kNames = {"forward_discard", "forward_keep",
                                                      "forward_save", "backward"};
  return kNames[static_cast<std::size_t>(op)];
}

std::size_t run_end(const std::vector<Operation>& operations, std::size_t start) {
  const int direction = operations[start].op == LayerOp::kBackward ? -1 : 1;
  std::size_t end = start + 1;
  while (end < operations.size() && operations[end].op == operations[start].op &&
         operations[end].layer == operations[end - 1].layer + direction) {
    ++end;
  }
  return end;
}

namespace {

/// The tensors of a chain while a list of operations runs.
class Store {
 public:
  explicit Store(const Chain& chain)
      : chain_(chain),
        outputs_(chain.layers.size() + 1, 0),
        saved_(chain.layers.size() + 1, 0),
        idle_gone_(chain.layers.size() + 1, 0),
        gradient_of_(chain.size()),
        live_(output_bytes(gradient_of_)) {
    outputs_[0] = 1;  // the chain's input, which costs nothing
  }

  void run(const Operation& operation) {
    const int l = operation.layer;
    if (l < 1 || l > chain_.size()) refuse(operation, "there is no such layer");
    const ChainLayer& layer = chain_.layer(l);
    if (operation.op == LayerOp::kBackward) {
      backward(operation, layer);
      return;
    }
    if (!has_output(l - 1)) refuse(operation, "its input is not there");
    phase().time += layer.forward;
    const bool save = operation.op == LayerOp::kForwardSave;
    const bool fresh = save ? saved_[index(l)] == 0 : !has_output(l);
    const std::int64_t made = fresh ? (save ? layer.saved_bytes : layer.output_bytes) : 0;
    reach(live_ + made + layer.forward_temp_bytes);
    live_ += made;
    if (save && outputs_[index(l)] != 0) drop_output(l);  // it is part of what was saved
    (save ? saved_ : outputs_)[index(l)] = 1;
    if (save && just_saved_ == l - 1) drop_idle(l - 1);
    just_saved_ = save ? l : 0;
    if (operation.op == LayerOp::kForwardDiscard) drop_output(l - 1);
    if (l == chain_.size()) drop_output(l);  // the next stage's
    phase().held_bytes = live_ - last_gradient();
    if (l == chain_.size() && phase_ == Phase::kForward) enter(Phase::kRecompute);
  }

  OperationsCost finish() const {
    if (gradient_of_ != 0) {
      throw InvalidArgument(
          "recompute", fmt::format("the list ends before the backward of layer {}", gradient_of_));
    }
    OperationsCost cost = cost_;
    for (const PhaseCost* phase : {&cost.forward, &cost.recompute, &cost.backward})
      cost.time += phase->time;
    return cost;
  }

 private:
  enum class Phase { kForward, kRecompute, kBackward };

  PhaseCost& phase() {
    if (phase_ == Phase::kForward) return cost_.forward;
    return phase_ == Phase::kRecompute ? cost_.recompute : cost_.backward;
  }

  void enter(Phase next) {
    const std::int64_t held = phase().held_bytes;
    phase_ = next;
    phase().held_bytes = held;
    phase().peak_bytes = held;
  }

  /// What a phase need not count: the gradient of the last output, which comes with the backward.
  std::int64_t last_gradient() const {
    return phase_ == Phase::kBackward ? 0 : output_bytes(chain_.size());
  }

  void reach(std::int64_t bytes) {
    cost_.peak_bytes = std::max(cost_.peak_bytes, bytes);
    phase().peak_bytes = std::max(phase().peak_bytes, bytes - last_gradient());
  }

  static std::size_t index(int layer) { return static_cast<std::size_t>(layer); }
  bool has_output(int l) const {
    return outputs_[index(l)] != 0 || (saved_[index(l)] != 0 && idle_gone_[index(l)] == 0);
  }
  std::int64_t output_bytes(int l) const { return l == 0 ? 0 : chain_.layer(l).output_bytes; }
  std::int64_t gradient_bytes() const { return output_bytes(gradient_of_); }

  void drop_output(int l) {
    if (l == 0 || outputs_[index(l)] == 0) return;
    outputs_[index(l)] = 0;
    live_ -= output_bytes(l);
  }

  void drop_idle(int l) {
    if (l == 0 || chain_.layer(l).idle_bytes == 0) return;
    idle_gone_[index(l)] = 1;
    live_ -= chain_.layer(l).idle_bytes;
  }

  void backward(const Operation& operation, const ChainLayer& layer) {
    const int l = operation.layer;
    if (l != gradient_of_) refuse(operation, "it is not its turn");
    if (saved_[index(l)] == 0) refuse(operation, "what it needs was not saved");
    if (!has_output(l - 1) && idle_gone_[index(l - 1)] == 0)
      refuse(operation, "its input is not there");
    just_saved_ = 0;
    if (phase_ != Phase::kBackward) enter(Phase::kBackward);
    phase().time += layer.backward;
    reach(live_ + layer.backward_temp_bytes);
    drop_output(l - 1);  // what was kept for it
    live_ -= layer.saved_bytes + gradient_bytes();
    if (std::exchange(idle_gone_[index(l)], 0) != 0) live_ += layer.idle_bytes;
    saved_[index(l)] = 0;
    --gradient_of_;
    live_ += gradient_bytes();
    phase().held_bytes = live_;
  }

  [[noreturn]] static void refuse(const Operation& operation, const char* why) {
    throw InvalidArgument("recompute", fmt::format("{} of layer {} cannot run: {}",
                                                   op_name(operation.op), operation.layer, why));
  }

  const Chain& chain_;
  std::vector<char> outputs_;    // by layer: its output is there by itself
  std::vector<char> saved_;      // by layer: as part of all that its backward needs
  std::vector<char> idle_gone_;  // by layer: of what was saved, the idle part is let go
  int just_saved_ = 0;           // the layer that the last operation saved
  int gradient_of_;              // the layer whose output's gradient is there
  std::int64_t live_;
  Phase phase_ = Phase::kForward;
  OperationsCost cost_;
};

}  // namespace

OperationsCost run_operations(const Chain& chain, const std::vector<Operation>& operations) {
  Store store(chain);
  for (const Operation& operation : operations) store.run(operation);
  return store.finish();
}

}  // namespace pipewright
