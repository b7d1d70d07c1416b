#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include "pipewright/graph/batch_rules.h"

// Products, convolutions, norms and recurrent layers.

namespace pipewright {
namespace {

using Kind = Spread::Kind;

/// Samples in dimension 0 of the first input, all else shared: convolutions, pooling, group norm.
std::optional<Ruling> by_sample(const OperationView& op) {
  for (std::size_t i = 1; i < op.spreads.size(); ++i)
    if (op.spreads[i].kind != Kind::kShared) return std::nullopt;
  if (op.spreads[0].kind != Kind::kRows || op.spreads[0].dim != 0) return std::nullopt;
  return Ruling{std::vector<Spread>(op.outputs.size(), op.spreads[0])};
}

std::optional<Ruling> linear(const OperationView& op) {
  const Spread& spread = op.spreads[0];
  for (std::size_t i = 1; i < op.spreads.size(); ++i)
    if (op.spreads[i].kind != Kind::kShared) return std::nullopt;
  if (spread.kind != Kind::kRows || spread.dim == op.tensor(0).dim() - 1) return std::nullopt;
  return Ruling{{spread}};
}

std::optional<Ruling> embedding(const OperationView& op) {
  if (op.spreads[0].kind != Kind::kShared || op.spreads[1].kind != Kind::kRows) return std::nullopt;
  return Ruling{{op.spreads[1]}};
}

/// a (..., i, k) times b (..., k, j), both of two dimensions or more. Both with samples in a
/// leading dimension: by sample. One of them in i or j: so is the product. In i and j: every pair.
std::optional<Ruling> matmul(const OperationView& op) {
  if (op.tensor(0).dim() < 2 || op.tensor(1).dim() < 2) return std::nullopt;
  const auto from_right = [&](std::size_t i) { return op.tensor(i).dim() - op.spreads[i].dim; };
  const bool left = op.spreads[0].kind == Kind::kRows;
  const bool right = op.spreads[1].kind == Kind::kRows;
  const std::int64_t dims = op.outputs[0].toTensor().dim();
  if ((left && from_right(0) == 1) || (right && from_right(1) == 2)) {
    return mixed(1, MixingKind::kOverBatch,
                 "multiplies matrices and so takes a sum over the batch");
  }
  if (left && right && from_right(0) == 2 && from_right(1) == 1) {
    return mixed(1, MixingKind::kPairs,
                 "multiplies every sample with every other one of the batch (in-batch negatives)");
  }
  if (left && right) {
    if (from_right(0) != from_right(1) || !op.spreads[0].lies_as(op.spreads[1]))
      return std::nullopt;
    return Ruling{{Spread::rows(dims - from_right(0), op.spreads[0].fold, op.spreads[0].outer)}};
  }
  const std::size_t one = left ? 0 : 1;
  if (op.spreads[one].kind != Kind::kRows) return std::nullopt;
  return Ruling{
      {Spread::rows(dims - from_right(one), op.spreads[one].fold, op.spreads[one].outer)}};
}

std::optional<Ruling> batch_norm(const OperationView& op) {
  const auto training = op.argument("training");
  if (op.spreads[0].kind != Kind::kRows || !training) return std::nullopt;
  Ruling ruling{{op.spreads[0]}};
  if (op.inputs[*training].toBool()) {
    ruling.mixing = MixingKind::kBatchNorm;
    ruling.words = "normalises by the statistics of the batch (batch norm in training)";
  }
  return ruling;
}

std::optional<Ruling> layer_norm(const OperationView& op) {
  const auto normalized = static_cast<std::int64_t>(op.inputs[1].toIntVector().size());
  if (op.spreads[0].kind != Kind::kRows) return std::nullopt;
  if (op.spreads[0].dim >= op.tensor(0).dim() - normalized) return std::nullopt;
  return Ruling{{op.spreads[0]}};
}

/// Outputs by step, then states (layers, samples, width).
std::optional<Ruling> recurrent(const OperationView& op) {
  if (op.spreads[0].kind != Kind::kRows || !op.spreads[0].lies_as(Spread::rows(0)))
    return std::nullopt;
  const auto first = op.argument("batch_first");
  if (!first) return std::nullopt;  // packed sequences
  if (op.spreads[0].dim != (op.inputs[*first].toBool() ? 0 : 1)) return std::nullopt;
  std::vector<Spread> outputs(op.outputs.size(), Spread::rows(1));
  outputs[0] = op.spreads[0];
  return Ruling{std::move(outputs)};
}

}  // namespace

void add_product_rules(Rules* rules) {
  for (const char* name : {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                           "conv_transpose3d", "_convolution", "group_norm", "max_pool1d",
                           "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
                           "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}) {
    (*rules)[name] = by_sample;
  }
  (*rules)["linear"] = linear;
  (*rules)["embedding"] = embedding;
  for (const char* name : {"matmul", "mm", "bmm"}) (*rules)[name] = matmul;
  (*rules)["batch_norm"] = batch_norm;
  (*rules)["layer_norm"] = layer_norm;
  for (const char* name : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) (*rules)[name] = recurrent;
}

}  // namespace pipewright
