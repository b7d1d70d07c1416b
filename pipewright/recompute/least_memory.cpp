#include "pipewright/recompute/least_memory.h"

#include <algorithm>

namespace pipewright {

std::int64_t need_of_one(const Chain& chain, int s) {
  const ChainLayer& layer = chain.layer(s);
  return layer.output_bytes + layer.saved_bytes +
         std::max(layer.forward_temp_bytes, layer.backward_temp_bytes);
}

std::int64_t need_of_save(const Chain& chain, int s, int t) {
  const ChainLayer& layer = chain.layer(s);
  return layer.saved_bytes + std::max(chain.layer(t).output_bytes + layer.forward_temp_bytes,
                                      layer.output_bytes + layer.backward_temp_bytes);
}

std::int64_t need_of_keep(const Chain& chain, int s, int t) {
  // All of s + 1 .. t - 1 may be looked at, not only those before `middle`: whatever runs a layer
  // after it, with its input kept or saved, needs as much.
  std::int64_t most = chain.layer(s).output_bytes + chain.layer(s).forward_temp_bytes;
  for (int l = s + 1; l < t; ++l) {
    const ChainLayer& layer = chain.layer(l);
    most = std::max(
        most, chain.layer(l - 1).output_bytes + layer.output_bytes + layer.forward_temp_bytes);
  }
  return chain.layer(t).output_bytes + most;
}

std::int64_t most_needed(const Chain& chain) {
  std::int64_t saved = 0;
  std::int64_t most = 0;
  for (const ChainLayer& layer : chain.layers) {
    saved += layer.saved_bytes;
    most =
        std::max({most, layer.forward_temp_bytes, layer.output_bytes + layer.backward_temp_bytes});
  }
  return saved + chain.layers.back().output_bytes + most;
}

void write_forwards(int s, int middle, std::vector<Operation>* result) {
  result->push_back({LayerOp::kForwardKeep, s});
  for (int l = s + 1; l < middle; ++l) result->push_back({LayerOp::kForwardDiscard, l});
}

LeastMemory::LeastMemory(const Chain& chain)
    : chain_(chain), choices_(chain.layers.size() * chain.layers.size()) {
  for (int length = 0; length < chain.size(); ++length) {
    for (int s = 1; s + length <= chain.size(); ++s) at(s, s + length) = best(s, s + length);
  }
}

LeastMemory::Choice& LeastMemory::at(int s, int t) {
  return choices_[static_cast<std::size_t>(s - 1) * chain_.layers.size() +
                  static_cast<std::size_t>(t - 1)];
}

LeastMemory::Choice LeastMemory::best(int s, int t) const {
  if (s == t) return {need_of_one(chain_, s), 0};
  const ChainLayer& first = chain_.layer(s);
  Choice choice{std::max(need_of_save(chain_, s, t), first.saved_bytes + at(s + 1, t).bytes), 0};
  const std::int64_t forwards = need_of_keep(chain_, s, t);
  for (int middle = s + 1; middle <= t; ++middle) {
    const std::int64_t kept = chain_.layer(middle - 1).output_bytes;
    const std::int64_t bytes =
        std::max({forwards, kept + at(middle, t).bytes, at(s, middle - 1).bytes});
    if (bytes < choice.bytes) choice = {bytes, middle};
  }
  return choice;
}

void LeastMemory::write(int s, int t, std::vector<Operation>* result) const {
  const int middle = at(s, t).middle;
  if (middle == 0) {
    result->push_back({LayerOp::kForwardSave, s});
    if (s < t) write(s + 1, t, result);
    result->push_back({LayerOp::kBackward, s});
    return;
  }
  write_forwards(s, middle, result);
  write(middle, t, result);
  write(s, middle - 1, result);
}

std::int64_t LeastMemory::bytes() const { return at(1, chain_.size()).bytes; }

std::vector<Operation> LeastMemory::operations() const {
  std::vector<Operation> result;
  write(1, chain_.size(), &result);
  return result;
}

}  // namespace pipewright
