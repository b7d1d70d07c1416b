#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>

#include "pipewright/base/error.h"
#include "pipewright/graph/flatten.h"

// A batch norm in training counts its calls in num_batches_tracked. Over micro-batches it would
// count each of them, and recomputed ones twice. So the counting is taken out of the graph; whoever
// runs the graph counts mini-batches.

namespace jit = torch::jit;

namespace pipewright {
namespace {

void visit(jit::Block* block, const std::function<void(jit::Node*)>& call) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    jit::Node* node = *it++;  // call() may destroy it
    for (jit::Block* inner : node->blocks()) visit(inner, call);
    call(node);
  }
}

/// The attribute that a value is, looked for behind the branches of `if training`.
std::optional<std::size_t> attribute_behind(const FlatGraph& flat, const jit::Value* value) {
  const auto& inputs = flat.ir->inputs();
  const auto at = std::find(inputs.begin(), inputs.end(), value);
  if (at != inputs.end()) {
    const auto index = static_cast<std::size_t>(at - inputs.begin());
    if (index < flat.inputs.size()) return std::nullopt;
    return index - flat.inputs.size();
  }
  const jit::Node* node = value->node();
  if (node->kind() == c10::prim::unchecked_cast) return attribute_behind(flat, node->input());
  if (node->kind() != c10::prim::If) return std::nullopt;
  for (const jit::Block* branch : node->blocks()) {
    if (const auto found = attribute_behind(flat, branch->outputs().at(value->offset())))
      return found;
  }
  return std::nullopt;
}

std::string module_of(const std::string& attribute) {
  const auto dot = attribute.rfind('.');
  return dot == std::string::npos ? "" : attribute.substr(0, dot);
}

/// As an integer, or, where it was traced, as a tensor.
bool is_one(const c10::IValue& value) {
  if (value.isInt()) return value.toInt() == 1;
  return value.isTensor() && value.toTensor().numel() == 1 && value.toTensor().item<double>() == 1;
}

/// `counter.add_(1)` whose result nobody looks at.
std::optional<std::size_t> counted(const FlatGraph& flat, const jit::Node* node) {
  if (node->kind() != c10::Symbol::fromQualString("aten::add_")) return std::nullopt;
  if (node->output()->hasUses()) return std::nullopt;
  const auto attribute = attribute_behind(flat, node->input(0));
  const auto step = jit::toIValue(node->input(1));
  if (!attribute || !step || !is_one(*step)) return std::nullopt;
  const torch::Tensor& tensor = flat.attributes[*attribute].tensor;
  if (!tensor.defined() || tensor.is_floating_point() || tensor.numel() != 1) return std::nullopt;
  return attribute;
}

void refuse_moving_momentum(const jit::Node& node) {
  throw InvalidArgument("graph",
                        describe(node) +
                            " has no constant momentum: a running average over all batches "
                            "would count micro-batches; export it with a momentum");
}

}  // namespace

void take_out_counters(FlatGraph* flat) {
  std::vector<GraphNorm> norms;
  visit(flat->ir->block(), [&](jit::Node* node) {
    if (node->kind() != c10::Symbol::fromQualString("aten::batch_norm")) return;
    const auto mean = attribute_behind(*flat, node->namedInput("running_mean"));
    const auto var = attribute_behind(*flat, node->namedInput("running_var"));
    if (!mean || !var) return;
    const auto momentum = jit::toIValue(node->namedInput("momentum"));
    if (!momentum) refuse_moving_momentum(*node);
    norms.push_back({*mean, *var, 0, momentum->toDouble()});
  });
  visit(flat->ir->block(), [&](jit::Node* node) {
    const auto counter = counted(*flat, node);
    if (!counter) return;
    const std::string module = module_of(flat->attributes[*counter].name);
    for (GraphNorm norm : norms) {
      if (module_of(flat->attributes[norm.running_mean].name) != module) continue;
      norm.counter = *counter;
      const bool known =
          std::any_of(flat->norms.begin(), flat->norms.end(), [&](const auto& other) {
            return other.counter == norm.counter;  // it is called more than once
          });
      if (!known) flat->norms.push_back(norm);
      node->destroy();
      return;
    }
  });
}

}  // namespace pipewright
