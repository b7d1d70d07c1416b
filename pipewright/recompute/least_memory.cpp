#include "pipewright/recompute/least_memory.h"

#include <algorithm>

namespace pipewright {
namespace {

constexpr std::int64_t kNever = std::int64_t{1} << 62;

}  // namespace

std::int64_t need_of_save(const Chain& chain, int s, int t) {
  const ChainLayer& layer = chain.layer(s);
  return layer.saved_bytes + chain.layer(t).output_bytes + layer.forward_temp_bytes;
}

std::int64_t need_of_backward(const Chain& chain, int s, bool idle) {
  const ChainLayer& layer = chain.layer(s);
  return layer.saved_bytes + layer.output_bytes + layer.backward_temp_bytes -
         (idle ? 0 : layer.idle_bytes);
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

const LeastMemory::Choice& LeastMemory::Choices::of(Start start) const {
  if (start == Start::kKeep) return keep;
  return start == Start::kSave ? save : save_after_save;
}

LeastMemory::LeastMemory(const Chain& chain)
    : chain_(chain), choices_(chain.layers.size() * chain.layers.size()) {
  for (int length = 0; length < chain.size(); ++length) {
    for (int s = 1; s + length <= chain.size(); ++s) {
      const int t = s + length;
      Choices& choices = at(s, t);
      choices.keep = keep(s, t);
      choices.save = save(s, t, 0);
      if (s > 1) choices.save_after_save = save(s, t, chain.layer(s - 1).idle_bytes);
    }
  }
}

LeastMemory::Choices& LeastMemory::at(int s, int t) {
  return choices_[static_cast<std::size_t>(s - 1) * chain_.layers.size() +
                  static_cast<std::size_t>(t - 1)];
}

LeastMemory::Choice LeastMemory::save(int s, int t, std::int64_t idle_before) const {
  const std::int64_t forward = idle_before + need_of_save(chain_, s, t);
  if (s == t) return {std::max(forward, need_of_backward(chain_, s, true)), 0, Start::kSave};
  const ChainLayer& first = chain_.layer(s);
  const Choices& rest = at(s + 1, t);
  const std::int64_t saved =
      std::max(need_of_backward(chain_, s, false),
               first.saved_bytes - first.idle_bytes + rest.save_after_save.bytes);
  const std::int64_t kept =
      std::max(need_of_backward(chain_, s, true), first.saved_bytes + rest.keep.bytes);
  if (kept < saved) return {std::max(forward, kept), 0, Start::kKeep};
  return {std::max(forward, saved), 0, Start::kSaveAfterSave};
}

LeastMemory::Choice LeastMemory::keep(int s, int t) const {
  Choice choice{kNever, 0, Start::kKeep};
  if (s == t) return choice;
  const std::int64_t forwards = need_of_keep(chain_, s, t);
  for (int middle = s + 1; middle <= t; ++middle) {
    const std::int64_t kept = chain_.layer(middle - 1).output_bytes;
    const std::int64_t bytes =
        std::max({forwards, kept + at(middle, t).bytes(), at(s, middle - 1).bytes()});
    if (bytes < choice.bytes) choice = {bytes, middle, Start::kKeep};
  }
  return choice;
}

void LeastMemory::write(int s, int t, Start start, std::vector<Operation>* result) const {
  const Choice& choice = at(s, t).of(start);
  if (start != Start::kKeep) {
    result->push_back({LayerOp::kForwardSave, s});
    if (s < t) write(s + 1, t, choice.next, result);
    result->push_back({LayerOp::kBackward, s});
    return;
  }
  write_forwards(s, choice.middle, result);
  write(choice.middle, t, at(choice.middle, t).best(), result);
  write(s, choice.middle - 1, at(s, choice.middle - 1).best(), result);
}

std::int64_t LeastMemory::bytes() const { return at(1, chain_.size()).bytes(); }

std::vector<Operation> LeastMemory::operations() const {
  std::vector<Operation> result;
  write(1, chain_.size(), at(1, chain_.size()).best(), &result);
  return result;
}

}  // namespace pipewright
