#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "pipewright/graph/batch_rules.h"

// Losses, and arithmetic with what is already a sum or a mean over the batch.

namespace pipewright {
namespace {

using Kind = Spread::Kind;

constexpr std::int64_t kNoReduction = 0;
constexpr std::int64_t kSumReduction = 2;

/// A loss with a `reduction`, over inputs that carry the batch.
std::optional<Ruling> loss(const OperationView& op) {
  const auto reduction = op.integer("reduction");
  if (!reduction || *reduction == kNoReduction) return std::nullopt;
  if (op.spreads[0].kind != Kind::kRows) return std::nullopt;
  return Ruling{{Spread::of(*reduction == kSumReduction ? Kind::kSum : Kind::kMean)}};
}

/// Means over the targets that are not to be ignored; with weights by class they are tried, and
/// then refused where it matters.
std::optional<Ruling> class_loss(const OperationView& op) {
  const auto reduction = op.integer("reduction");
  const auto ignored = op.integer("ignore_index");
  const auto weight = op.argument("weight");
  if (!reduction || !ignored || !weight || *reduction == kNoReduction) return std::nullopt;
  if (op.spreads[0].kind != Kind::kRows || op.spreads[1].kind != Kind::kRows) return std::nullopt;
  if (op.spreads[0].dim != 0 || op.spreads[1].dim != 0) return std::nullopt;
  if (op.tensor(1).is_floating_point()) return std::nullopt;  // probabilities
  if (*reduction == kSumReduction)
    return Ruling{std::vector<Spread>(op.outputs.size(), Spread::of(Kind::kSum))};
  if (!op.inputs[*weight].isNone() && op.inputs[*weight].isTensor() && op.tensor(*weight).defined())
    return std::nullopt;
  Spread ratio = Spread::of(Kind::kRatio);
  ratio.targets = op.node.input(1);
  ratio.ignored = *ignored;
  return Ruling{std::vector<Spread>(op.outputs.size(), ratio)};
}

Ruling not_linear(const OperationView& op, const std::string& name) {
  const bool with_rows = std::any_of(op.spreads.begin(), op.spreads.end(),
                                     [](const Spread& s) { return s.kind == Kind::kRows; });
  return mixed(op.outputs.size(), MixingKind::kCombination,
               with_rows
                   ? "combines every sample with a sum or mean over the batch"
                   : fmt::format("is {} of a sum or mean over the batch, which is not the sum "
                                 "or mean of that of the micro-batches",
                                 name));
}

/// a + b and a - b, of which at least one is reduced.
std::optional<Spread> sum_of(const Spread& a, const Spread& b) {
  const Spread& reduced = a.is_reduced() ? a : b;
  const Spread& other = a.is_reduced() ? b : a;
  if (other == reduced) return reduced;
  // The mean of something plus a constant is the constant more; a sum would add it each time.
  if (other.kind == Kind::kShared && reduced.kind != Kind::kSum) return reduced;
  return std::nullopt;
}

std::optional<Spread> product_of(const Spread& a, const Spread& b) {
  const Spread& reduced = a.is_reduced() ? a : b;
  const Spread& other = a.is_reduced() ? b : a;
  if (other.kind == Kind::kShared) return reduced;
  if (other.kind == Kind::kSize && reduced.kind == Kind::kMean) return Spread::of(Kind::kSum);
  return std::nullopt;
}

std::optional<Spread> quotient_of(const OperationView& op) {
  const Spread& a = op.spreads[0];
  const Spread& b = op.spreads[1];
  if (!a.is_reduced()) return std::nullopt;
  if (b.kind == Kind::kShared) return a;
  if (a.kind == Kind::kSum && b.kind == Kind::kSize) return Spread::of(Kind::kMean);
  const bool counts = b.kind == Kind::kSum && !op.tensor(1).requires_grad();
  if (a.kind != Kind::kSum || !counts || op.tensor(1).numel() != 1) return std::nullopt;
  Spread ratio = Spread::of(Kind::kRatio);
  ratio.count = op.node.input(1);
  return ratio;
}

bool rest_is_shared(const OperationView& op, std::size_t first) {
  return std::all_of(op.spreads.begin() + static_cast<std::ptrdiff_t>(first), op.spreads.end(),
                     [](const Spread& s) { return s.kind == Kind::kShared; });
}

bool is_any(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return name == n; });
}

}  // namespace

Ruling reduced_rule(const OperationView& op, const std::string& name) {
  std::optional<Spread> result;
  const bool two = op.spreads.size() >= 2 && rest_is_shared(op, 2);
  if (is_any(name, {"add", "sub"}) && two) result = sum_of(op.spreads[0], op.spreads[1]);
  if (name == "mul" && two) result = product_of(op.spreads[0], op.spreads[1]);
  if (name == "div" && two) result = quotient_of(op);
  if (is_any(name, {"alias", "clone", "contiguous", "detach", "flatten", "mean", "neg", "reshape",
                    "select", "squeeze", "sum", "to", "unsqueeze", "view"}) &&
      rest_is_shared(op, 1)) {
    result = op.spreads[0];
  }
  if (is_any(name, {"ListConstruct", "TupleConstruct"})) {
    result = Spread::of(Kind::kParts);
    result->parts = op.spreads;
  }
  if (!result) return not_linear(op, name);
  return {std::vector<Spread>(op.outputs.size(), *result)};
}

void add_loss_rules(Rules* rules) {
  for (const char* name :
       {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits", "soft_margin_loss"}) {
    (*rules)[name] = loss;
  }
  for (const char* name : {"cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d"})
    (*rules)[name] = class_loss;
}

}  // namespace pipewright
