#include "pipewright/recompute/modes.h"

#include <cmath>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

void save_block(int first, int last, std::vector<Operation>* operations) {
  for (int l = first; l <= last; ++l) operations->push_back({LayerOp::kForwardSave, l});
}

void backward_block(int first, int last, std::vector<Operation>* operations) {
  for (int l = last; l >= first; --l) operations->push_back({LayerOp::kBackward, l});
}

/// The operation that `next`, on the following layer, must be so that both are one on their group.
bool goes_on(const Operation& operation, const Operation& next) {
  if (operation.op == LayerOp::kBackward)
    return next.op == LayerOp::kBackward && next.layer == operation.layer - 1;
  if (next.layer != operation.layer + 1) return false;
  if (operation.op == LayerOp::kForwardSave) return next.op == LayerOp::kForwardSave;
  return next.op == LayerOp::kForwardDiscard;
}

/// By layer: it and the next one are run one after the other whenever one of them is run.
std::vector<char> find_glued(const std::vector<Operation>& operations, int layers) {
  std::vector<char> glued(static_cast<std::size_t>(layers), 1);
  glued.back() = 0;
  const auto separate = [&](int layer) {
    if (layer >= 1 && layer < layers) glued[static_cast<std::size_t>(layer - 1)] = 0;
  };
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Operation& now = operations[i];
    const bool backward = now.op == LayerOp::kBackward;
    const bool follows = i > 0 && goes_on(operations[i - 1], now);
    const bool is_followed = i + 1 < operations.size() && goes_on(now, operations[i + 1]);
    if (!follows) separate(backward ? now.layer : now.layer - 1);
    if (!is_followed) separate(backward ? now.layer - 1 : now.layer);
  }
  return glued;
}

}  // namespace

std::vector<Operation> save_everything(int layers) {
  std::vector<Operation> operations;
  save_block(1, layers, &operations);
  backward_block(1, layers, &operations);
  return operations;
}

std::vector<Operation> keep_checkpoints(int layers, const std::vector<int>& checkpoints,
                                        bool save_last) {
  internal_check(!checkpoints.empty() && checkpoints[0] == 1, "the first layer is a checkpoint");
  const auto last_of = [&](std::size_t block) {
    return block + 1 < checkpoints.size() ? checkpoints[block + 1] - 1 : layers;
  };
  std::vector<Operation> operations;
  for (std::size_t block = 0; block < checkpoints.size(); ++block) {
    if (save_last && block + 1 == checkpoints.size()) break;
    operations.push_back({LayerOp::kForwardKeep, checkpoints[block]});
    for (int l = checkpoints[block] + 1; l <= last_of(block); ++l)
      operations.push_back({LayerOp::kForwardDiscard, l});
  }
  for (std::size_t block = checkpoints.size(); block-- > 0;) {
    save_block(checkpoints[block], last_of(block), &operations);
    backward_block(checkpoints[block], last_of(block), &operations);
  }
  return operations;
}

std::vector<int> every(int layers, int n) {
  std::vector<int> checkpoints;
  for (int l = 1; l <= layers; l += n) checkpoints.push_back(l);
  return checkpoints;
}

std::vector<int> sqrt_checkpoints(int layers) {
  const int blocks = static_cast<int>(std::lround(std::sqrt(static_cast<double>(layers))));
  std::vector<int> checkpoints;
  for (int block = 0; block < blocks; ++block) checkpoints.push_back(1 + block * layers / blocks);
  return checkpoints;
}

GroupedOperations group_layers(const std::vector<Operation>& operations,
                               const std::vector<char>& alone) {
  const int layers = static_cast<int>(alone.size());
  std::vector<char> glued = find_glued(operations, layers);
  for (std::size_t l = 0; l < alone.size(); ++l) {
    if (alone[l] == 0) continue;
    glued[l] = 0;
    if (l > 0) glued[l - 1] = 0;
  }
  GroupedOperations grouped;
  std::vector<int> group_of(alone.size() + 1);
  for (int l = 1; l <= layers; ++l) {
    const bool starts = l == 1 || glued[static_cast<std::size_t>(l - 2)] == 0;
    if (starts) grouped.sizes.push_back(0);
    ++grouped.sizes.back();
    group_of[static_cast<std::size_t>(l)] = static_cast<int>(grouped.sizes.size());
  }
  for (const Operation& operation : operations) {
    const auto l = static_cast<std::size_t>(operation.layer);
    const bool backward = operation.op == LayerOp::kBackward;
    // Of a group's layers, the first that is run speaks for it.
    const bool first =
        backward ? l == alone.size() || glued[l - 1] == 0 : l == 1 || glued[l - 2] == 0;
    if (first) grouped.operations.push_back({operation.op, group_of[l]});
  }
  return grouped;
}

}  // namespace pipewright
