#include "pipewright/graph/batch_rules.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

namespace pipewright {
namespace {

using Kind = Spread::Kind;

bool is_tensor(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

/// Shapes are matched from their last dimension: samples must be in the same one everywhere.
std::optional<Ruling> elementwise(const OperationView& op) {
  std::int64_t from_right = -1;
  Spread like;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const Spread& spread = op.spreads[i];
    if (spread.kind == Kind::kShared) continue;
    if (spread.kind != Kind::kRows) return std::nullopt;
    const std::int64_t place = op.tensor(i).dim() - spread.dim;
    if (from_right >= 0 && (place != from_right || !spread.lies_as(like))) return std::nullopt;
    from_right = place;
    like = spread;
  }
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.spreads[i].kind != Kind::kShared || !is_tensor(op.inputs[i])) continue;
    const torch::Tensor tensor = op.tensor(i);
    if (tensor.dim() < from_right || tensor.size(tensor.dim() - from_right) == 1) continue;
    return mixed(op.outputs.size(), MixingKind::kFixedRows,
                 fmt::format("combines the batch with a shared tensor of {} rows",
                             tensor.size(tensor.dim() - from_right)));
  }
  Ruling ruling;
  for (const c10::IValue& output : op.outputs) {
    if (!is_tensor(output)) return std::nullopt;
    ruling.outputs.push_back(
        Spread::rows(output.toTensor().dim() - from_right, like.fold, like.outer));
  }
  return ruling;
}

const char* const kElementwise[] = {"abs",         "add",         "alpha_dropout",
                                    "bernoulli",   "bitwise_and", "bitwise_not",
                                    "bitwise_or",  "celu",        "clamp",
                                    "clamp_max",   "clamp_min",   "clone",
                                    "contiguous",  "cos",         "detach",
                                    "div",         "dropout",     "elu",
                                    "eq",          "erf",         "exp",
                                    "expm1",       "ge",          "gelu",
                                    "gt",          "hardsigmoid", "hardswish",
                                    "hardtanh",    "le",          "leaky_relu",
                                    "lerp",        "log",         "log1p",
                                    "log_sigmoid", "logical_and", "logical_not",
                                    "logical_or",  "lt",          "masked_fill",
                                    "maximum",     "minimum",     "mish",
                                    "mul",         "ne",          "neg",
                                    "ones_like",   "pow",         "prelu",
                                    "rand_like",   "randn_like",  "reciprocal",
                                    "relu",        "relu6",       "round",
                                    "rrelu",       "rsqrt",       "rsub",
                                    "selu",        "sigmoid",     "sign",
                                    "silu",        "sin",         "softplus",
                                    "sqrt",        "square",      "sub",
                                    "tanh",        "threshold",   "to",
                                    "type_as",     "where",       "zeros_like"};

Rules make_rules() {
  Rules rules;
  for (const char* name : kElementwise) rules[name] = elementwise;
  add_reduction_rules(&rules);
  add_product_rules(&rules);
  add_loss_rules(&rules);
  return rules;
}

/// aten::relu_ and aten::relu are ruled alike.
std::string plain_name(const torch::jit::Node& node) {
  std::string name = node.kind().toUnqualString();
  if (name.size() > 1 && name.back() == '_' && name[name.size() - 2] != '_') name.pop_back();
  return name;
}

}  // namespace

std::optional<std::size_t> OperationView::argument(const std::string& name) const {
  const c10::FunctionSchema* schema = node.maybeSchema();
  if (schema == nullptr) return std::nullopt;
  const auto index = schema->argumentIndexWithName(name);
  if (!index) return std::nullopt;
  return static_cast<std::size_t>(*index);
}

std::optional<std::int64_t> OperationView::integer(const std::string& name) const {
  const auto index = argument(name);
  if (!index || !inputs[*index].isInt()) return std::nullopt;
  return inputs[*index].toInt();
}

Ruling mixed(std::size_t num_outputs, MixingKind kind, std::string words) {
  return {std::vector<Spread>(num_outputs, Spread::of(Kind::kMixed)), kind, std::move(words)};
}

std::optional<Ruling> rule_of(const OperationView& op) {
  static const Rules rules = make_rules();
  const auto any = [&](auto holds) {
    return std::any_of(op.spreads.begin(), op.spreads.end(), holds);
  };
  const std::size_t num_outputs = op.outputs.size();
  // What mixes samples was told where it began.
  if (any([](const Spread& s) { return s.kind == Kind::kMixed; }))
    return Ruling{std::vector<Spread>(num_outputs, Spread::of(Kind::kMixed))};
  if (!any([](const Spread& s) { return s.kind != Kind::kShared; }))
    return Ruling{std::vector<Spread>(num_outputs)};
  const std::string name = plain_name(op.node);
  if (any([](const Spread& s) { return s.is_reduced(); })) return reduced_rule(op, name);
  if (!op.node.kind().is_aten()) return std::nullopt;
  const auto found = rules.find(name);
  return found == rules.end() ? std::nullopt : found->second(op);
}

}  // namespace pipewright
