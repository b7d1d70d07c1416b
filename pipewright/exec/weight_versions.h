#pragma once

#include <c10/core/TensorImpl.h>

#include <map>

#include "pipewright/nn/tensors.h"

namespace pipewright {

/// The weights of a stage as they were before its last updates. Asynchronous schedules change them
/// while micro-batches are under way, whose backwards need those that their forwards used.
///
///     version   3 (newest)  2           1
///     tensors   [c]         [b]         [a]      one copy of every parameter each
///                            ^ the parameters are these while somebody uses version 2
///
/// The parameters stay the same tensors for modules, optimizers and autograd: it is their memory
/// that is exchanged. Each version has a counter of changes of its own, by which autograd notices
/// what was saved with one version and is used with another. One thread at a time.
class WeightVersions {
 public:
  /// Their values are version 0.
  explicit WeightVersions(Tensors parameters);

  int newest() const { return newest_; }
  int in_use() const { return in_use_; }
  int num_held() const { return static_cast<int>(held_.size()); }

  /// The parameters are this version, until the next call.
  void use(int version);

  /// The parameters become the next version, for an update to change. Versions before `needed` are
  /// let go; where the newest is one of them, its memory is the next one's, else it is copied.
  void advance(int needed);

  /// Lets go of the versions before this one, but for the newest.
  void drop_before(int version);

 private:
  struct Held {
    Tensors values;  // without graph: they share the parameters' memory
    std::vector<c10::VariableVersion> counters;
  };

  void take(const Held& held);
  Held copy_of(const Held& held);

  Tensors parameters_;
  std::map<int, Held> held_;  // by version
  Tensors spare_;             // the memory of a version that nobody needs any more
  int newest_ = 0;
  int in_use_ = 0;
};

}  // namespace pipewright
