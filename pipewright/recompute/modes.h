#pragma once

#include <vector>

#include "pipewright/recompute/chain.h"

namespace pipewright {

/// Every layer saved, then every backward: nothing runs twice.
std::vector<Operation> save_everything(int layers);

/// The inputs of the layers `checkpoints` (in increasing order, the first is 1) are kept; what lies
/// between is run again, block by block, before its backward. `save_last`: the last block is saved
/// at once, as where its backward follows right away.
std::vector<Operation> keep_checkpoints(int layers, const std::vector<int>& checkpoints,
                                        bool save_last);

/// 1, 1 + n, 1 + 2n ...
std::vector<int> every(int layers, int n);

/// As many blocks as the root of the layers, of nearly equal length: Chen et al., arXiv 1604.06174.
std::vector<int> sqrt_checkpoints(int layers);

/// A list of operations over groups of layers that are always run together.
struct GroupedOperations {
  std::vector<int> sizes;             // layers by group
  std::vector<Operation> operations;  // on groups, which count from 1
};

/// The fewest groups that say the same. `alone`: by layer, those that must be groups of their own.
GroupedOperations group_layers(const std::vector<Operation>& operations,
                               const std::vector<char>& alone);

}  // namespace pipewright
