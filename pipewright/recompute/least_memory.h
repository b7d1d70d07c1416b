#pragma once

#include <cstdint>
#include <vector>

#include "pipewright/recompute/chain.h"

namespace pipewright {

// What the choices of a plan need, in bytes, over what is already held. The input of layer s is
// there and not counted, the gradient of t's output is counted.

/// Saving and at once backpropagating a single layer.
std::int64_t need_of_one(const Chain& chain, int s);
/// The forward of s that saves, and its backward at the end of s..t.
std::int64_t need_of_save(const Chain& chain, int s, int t);
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
  struct Choice {
    std::int64_t bytes = 0;
    int middle = 0;  // 0: save the first layer
  };
  Choice& at(int s, int t);
  const Choice& at(int s, int t) const { return const_cast<LeastMemory*>(this)->at(s, t); }
  Choice best(int s, int t) const;
  void write(int s, int t, std::vector<Operation>* result) const;

  const Chain& chain_;
  std::vector<Choice> choices_;  // by s and t
};

}  // namespace pipewright
