#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "pipewright/graph/batch_rules.h"

// Operations along dimensions: reductions, and those like softmax that keep the shape.

namespace pipewright {
namespace {

using Kind = Spread::Kind;

/// The dimensions an operation works along, none negative; all where it names none.
std::vector<std::int64_t> dimensions(const OperationView& op) {
  const std::int64_t num = op.tensor(0).dim();
  std::vector<std::int64_t> dims;
  const auto index = op.argument("dim");
  const c10::IValue named = index ? op.inputs[*index] : c10::IValue();
  if (named.isInt()) dims = {named.toInt()};
  if (named.isIntList()) dims = named.toIntVector();
  if (dims.empty()) {
    for (std::int64_t i = 0; i < num; ++i) dims.push_back(i);
  }
  for (std::int64_t& dim : dims) dim = dim < 0 ? dim + num : dim;
  return dims;
}

bool contains(const std::vector<std::int64_t>& dims, std::int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

std::string over_batch(const char* what, std::int64_t dim) {
  return fmt::format("takes {} over dimension {}, which is the batch", what, dim);
}

/// Where the batch's dimension is when `dims` are gone.
Spread kept_rows(const OperationView& op, const std::vector<std::int64_t>& dims) {
  Spread spread = op.spreads[0];
  if (op.outputs[0].toTensor().dim() == op.tensor(0).dim()) return spread;  // keepdim
  spread.dim -= std::count_if(dims.begin(), dims.end(),
                              [&](std::int64_t dim) { return dim < op.spreads[0].dim; });
  return spread;
}

/// `over`: what the result is where the batch is among the dimensions; kMixed: not to be split.
Rule reduction(const char* what, Kind over) {
  return [what, over](const OperationView& op) -> std::optional<Ruling> {
    if (op.spreads[0].kind != Kind::kRows) return std::nullopt;
    for (const c10::IValue& output : op.outputs)
      if (!output.isTensor()) return std::nullopt;
    const auto dims = dimensions(op);
    Ruling ruling;
    if (!contains(dims, op.spreads[0].dim)) {
      ruling.outputs.assign(op.outputs.size(), kept_rows(op, dims));
      return ruling;
    }
    if (over == Kind::kMixed)
      return mixed(op.outputs.size(), MixingKind::kOverBatch, over_batch(what, op.spreads[0].dim));
    ruling.outputs.assign(op.outputs.size(), Spread::of(over));
    return ruling;
  };
}

/// max(a, b) is elementwise and has no dimension: it is tried.
Rule extreme(const char* what) {
  return [what](const OperationView& op) -> std::optional<Ruling> {
    if (op.argument("other")) return std::nullopt;
    return reduction(what, Kind::kMixed)(op);
  };
}

/// The same shape; samples stay samples, though they may look at each other.
Rule along(const char* what) {
  return [what](const OperationView& op) -> std::optional<Ruling> {
    if (op.spreads[0].kind != Kind::kRows) return std::nullopt;
    Ruling ruling{{op.spreads[0]}};
    if (contains(dimensions(op), op.spreads[0].dim)) {
      ruling.mixing = MixingKind::kOverBatch;
      ruling.words = over_batch(what, op.spreads[0].dim);
    }
    return ruling;
  };
}

}  // namespace

void add_reduction_rules(Rules* rules) {
  (*rules)["sum"] = reduction("a sum", Kind::kSum);
  (*rules)["mean"] = reduction("a mean", Kind::kMean);
  (*rules)["max"] = extreme("a maximum");
  (*rules)["min"] = extreme("a minimum");
  (*rules)["softmax"] = along("a softmax");
  (*rules)["log_softmax"] = along("a logarithmic softmax");
  (*rules)["cumsum"] = along("a cumulative sum");
  (*rules)["cumprod"] = along("a cumulative product");
  for (const auto& [name, what] : {std::pair{"amax", "a maximum"},
                                   {"amin", "a minimum"},
                                   {"argmax", "the place of a maximum"},
                                   {"argmin", "the place of a minimum"},
                                   {"logsumexp", "a logarithmic sum"},
                                   {"norm", "a norm"},
                                   {"prod", "a product"},
                                   {"std", "a standard deviation"},
                                   {"var", "a variance"}}) {
    (*rules)[name] = reduction(what, Kind::kMixed);
  }
}

}  // namespace pipewright
