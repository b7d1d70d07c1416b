#pragma once

#include <cstdint>
#include <vector>

#include "pipewright/recompute/chain.h"

namespace pipewright {

// What the choices of a plan need, in bytes, over what is already held. The input of layer s is
// there and not counted, the gradient of t's output is counted.

/// The forward of s that saves, before t's backward.
std::int64_t need_of_save(const Chain& chain, int s, int t);
/// The backward of s, with or without the idle part of its output.
std::int64_t need_of_backward(const Chain& chain, int s, bool idle);
/// The forward of s that keeps its input, and the discarding ones that may follow it before t.
std::int64_t need_of_keep(const Chain& chain, int s, int t);
/// No plan of the chain needs more: everything saved.
std::int64_t most_needed(const Chain& chain);

/// The forwards from s, whose input stays, to middle - 1.
void write_forwards(int s, int middle, std::vector<Operation>* result);

/// The plan that needs the fewest bytes, whatever its time.
class LeastMemory {
 public:
  explicit LeastMemory(const Chain& chain);

  std::int64_t bytes() const;
  std::vector<Operation> operations() const;

 private:
  /// How a stretch s..t begins. A save may follow the save of s - 1: the idle part of that one's
  /// output is then not among what is held, but there until s has run.
  enum class Start { kSave, kSaveAfterSave, kKeep };

  struct Choice {
    std::int64_t bytes = 0;
    int middle = 0;             // of kKeep
    Start next = Start::kSave;  // of the others: how s + 1..t begins
  };
  struct Choices {
    Choice save, save_after_save, keep;
    const Choice& of(Start start) const;
    /// The better way to begin where nothing was saved before.
    Start best() const { return keep.bytes < save.bytes ? Start::kKeep : Start::kSave; }
    std::int64_t bytes() const { return of(best()).bytes; }
  };
  Choices& at(int s, int t);
  const Choices& at(int s, int t) const { return const_cast<LeastMemory*>(this)->at(s, t); }
  Choice keep(int s, int t) const;
  Choice save(int s, int t, std::int64_t idle_before) const;
  void write(int s, int t, Start start, std::vector<Operation>* result) const;

  const Chain& chain_;
  std::vector<Choices> choices_;  // by s and t
};

}  // namespace pipewright
