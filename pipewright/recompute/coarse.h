#pragma once

#include <vector>

#include "pipewright/recompute/chain.h"

namespace pipewright {

/// A chain whose layers are runs of another one's, for chains too long to be planned layer by
/// layer. What a plan of it needs, the plan of the layers behind it needs too, or less.
struct CoarseChain {
  Chain chain;
  std::vector<int> first;  // by coarse layer: its first layer; and one past the end

  /// The operations on the layers behind.
  std::vector<Operation> expand(const std::vector<Operation>& operations) const;
};

/// At most `most` runs, about equally heavy in what they save.
CoarseChain coarsen(const Chain& chain, int most);

}  // namespace pipewright
