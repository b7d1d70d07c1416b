#include "pipewright/recompute/coarse.h"

#include <algorithm>

namespace pipewright {
namespace {

/// Layers first .. last as one. The temporaries are such that whatever the layers need one by one
/// is no more than what the one layer is said to need.
ChainLayer merge(const Chain& chain, int first, int last) {
  ChainLayer merged;
  merged.output_bytes = chain.layer(last).output_bytes;
  merged.idle_bytes = chain.layer(last).idle_bytes;
  for (int l = first; l <= last; ++l) {
    const ChainLayer& layer = chain.layer(l);
    merged.forward += layer.forward;
    merged.backward += layer.backward;
    merged.saved_bytes += layer.saved_bytes;
    // A forward that saves holds part of saved_bytes; one that does not, the output before its own.
    const std::int64_t before = l > first ? chain.layer(l - 1).output_bytes : 0;
    merged.forward_temp_bytes =
        std::max({merged.forward_temp_bytes, layer.forward_temp_bytes,
                  before + layer.output_bytes + layer.forward_temp_bytes - merged.output_bytes});
    // The gradient of the run's own output is counted; that of this layer's may be larger.
    merged.backward_temp_bytes =
        std::max({merged.backward_temp_bytes, layer.backward_temp_bytes,
                  layer.output_bytes + layer.backward_temp_bytes - merged.output_bytes});
  }
  return merged;
}

}  // namespace

CoarseChain coarsen(const Chain& chain, int most) {
  double total = 0;
  for (const ChainLayer& layer : chain.layers) total += 1 + static_cast<double>(layer.saved_bytes);
  CoarseChain coarse;
  double passed = 0;
  for (int l = 1; l <= chain.size(); ++l) {
    const bool full =
        passed >= total / most * static_cast<double>(coarse.first.size());  // its share is had
    if (coarse.first.empty() || full) coarse.first.push_back(l);
    passed += 1 + static_cast<double>(chain.layer(l).saved_bytes);
  }
  coarse.first.push_back(chain.size() + 1);
  for (std::size_t i = 0; i + 1 < coarse.first.size(); ++i)
    coarse.chain.layers.push_back(merge(chain, coarse.first[i], coarse.first[i + 1] - 1));
  return coarse;
}

std::vector<Operation> CoarseChain::expand(const std::vector<Operation>& operations) const {
  std::vector<Operation> result;
  for (const Operation& operation : operations) {
    const auto run = static_cast<std::size_t>(operation.layer - 1);
    const int from = first[run];
    const int to = first[run + 1] - 1;
    for (int i = 0; i <= to - from; ++i) {
      const bool backward = operation.op == LayerOp::kBackward;
      const bool goes_on = operation.op == LayerOp::kForwardKeep && i > 0;
      result.push_back(
          {goes_on ? LayerOp::kForwardDiscard : operation.op, backward ? to - i : from + i});
    }
  }
  return result;
}

}  // namespace pipewright
