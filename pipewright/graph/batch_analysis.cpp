#include "pipewright/graph/batch_analysis.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_set>

#include "pipewright/base/error.h"
#include "pipewright/base/words.h"
#include "pipewright/graph/subgraph.h"
#include "pipewright/nn/random.h"

namespace jit = torch::jit;

namespace pipewright {
namespace {

using Kind = Spread::Kind;

struct Known {
  c10::IValue value;  // of the whole batch
  Spread spread;
};

bool is_constant(const jit::Node& node) { return node.kind() == c10::prim::Constant; }

/// Draws at random: whole and parts differ though they mean the same.
bool draws(const jit::Node& node) {
  return node.maybeOperator() != nullptr && node.isNondeterministic();
}

/// Shapes alone.
c10::IValue without_values(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  return torch::zeros_like(value.toTensor());
}

class Walk {
 public:
  Walk(const Graph& graph, const BatchOptions& options, std::int64_t rows, BatchReport* report)
      : graph_(graph), options_(options), parts_(rows), report_(report) {}

  void know(const jit::Value* value, c10::IValue whole, Spread spread) {
    report_->spreads[value] = spread;
    known_[value] = {std::move(whole), std::move(spread)};
  }

  const Known& of(const jit::Value* value) {
    const auto found = known_.find(value);
    if (found != known_.end()) return found->second;
    internal_check(is_constant(*value->node()), "a value is made before it is used");
    know(value, *jit::toIValue(value), Spread::shared());
    return known_.at(value);
  }

  void block(jit::Block& of) {
    for (jit::Node* node : of.nodes()) visit(node);
  }

 private:
  void visit(jit::Node* node) {
    if (is_constant(*node)) return;
    if (node->kind() == c10::prim::If) return branch(node);
    if (node->kind() == c10::prim::Loop) return loop(node);
    operation(node);
  }

  void mixing(const jit::Node& node, MixingKind kind, const std::string& words) {
    if (!told_.insert(&node).second) return;  // a loop's body is walked again
    report_->mixings.push_back({kind, describe(node), words});
  }

  void branch(jit::Node* node) {
    const Known condition = of(node->input());
    const bool free = condition.spread.kind == Kind::kShared;
    if (!free) mixing(*node, MixingKind::kBranch, "branches on values of the batch");
    jit::Block* taken = node->blocks()[condition.value.toBool() ? 0 : 1];
    block(*taken);
    for (std::size_t i = 0; i < node->outputs().size(); ++i) {
      const Known result = of(taken->outputs()[i]);
      know(node->output(i), result.value, free ? result.spread : Spread::of(Kind::kMixed));
    }
  }

  /// Inputs: the most iterations, whether to begin, what is carried on.
  void loop(jit::Node* node) {
    jit::Block* body = node->blocks()[0];
    const Known most = of(node->input(0));
    Known go_on = of(node->input(1));
    std::vector<Known> carried;
    for (std::size_t i = 2; i < node->inputs().size(); ++i) carried.push_back(of(node->input(i)));
    bool free = most.spread.kind == Kind::kShared;
    for (std::int64_t i = 0; i < most.value.toInt() && go_on.value.toBool(); ++i) {
      free = free && go_on.spread.kind == Kind::kShared;
      know(body->inputs()[0], i, Spread::shared());
      for (std::size_t k = 0; k < carried.size(); ++k)
        know(body->inputs()[k + 1], carried[k].value, carried[k].spread);
      block(*body);
      go_on = of(body->outputs()[0]);
      for (std::size_t k = 0; k < carried.size(); ++k) carried[k] = of(body->outputs()[k + 1]);
    }
    if (!free) mixing(*node, MixingKind::kBranch, "loops as often as values of the batch tell it");
    for (std::size_t k = 0; k < carried.size(); ++k)
      know(node->output(k), carried[k].value, free ? carried[k].spread : Spread::of(Kind::kMixed));
  }

  void operation(jit::Node* node) {
    const Subgraph run({node}, node->outputs().vec(), "operation");
    std::vector<c10::IValue> inputs;
    std::vector<Spread> spreads;
    for (const jit::Value* input : node->inputs()) {
      inputs.push_back(of(input).value);
      spreads.push_back(of(input).spread);
    }
    // Before the whole runs: it may write into its inputs.
    const auto first = part_inputs(run, 0);
    const auto second = part_inputs(run, 1);
    const auto outputs = run.run(values_of(run));
    const OperationView view{*node, inputs, spreads, outputs, parts_.rows};
    std::optional<Ruling> ruling = rule_of(view);
    if (!ruling) {
      ruling = tried(run, *node, first, second, outputs);
      note_tried(*node);
    } else if (options_.check_rules && first && !ruling->mixing && !draws(*node)) {
      check_rule(run, *node, first, second, outputs, *ruling);
    }
    settle(node, *ruling, outputs);
  }

  void settle(jit::Node* node, const Ruling& ruling, const std::vector<c10::IValue>& outputs) {
    if (ruling.mixing) mixing(*node, *ruling.mixing, ruling.words);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Spread& spread = ruling.outputs.at(i);
      know(node->output(i), outputs[i], spread);
      const bool was_reduced =
          std::any_of(node->inputs().begin(), node->inputs().end(),
                      [&](const jit::Value* input) { return of(input).spread.is_reduced(); });
      if (spread.is_reduced() && !was_reduced)
        report_->reduced.push_back(fmt::format("{} {}", describe(*node), to_text(spread)));
    }
    written(node, ruling);
  }

  /// An operation that writes into its input leaves there what it returns.
  void written(jit::Node* node, const Ruling& ruling) {
    const c10::FunctionSchema* schema = node->maybeSchema();
    if (schema == nullptr || !schema->is_mutable() || ruling.outputs.empty()) return;
    if (const auto attribute = graph_.attribute_of(node->input(0))) {
      mixing(*node, MixingKind::kCombination,
             fmt::format("writes into '{}', once for every micro-batch",
                         graph_.attributes()[*attribute].name));
      return;
    }
    const Spread before = of(node->input(0)).spread;
    if (before == ruling.outputs[0]) return;
    if (before.kind == Kind::kShared) {
      mixing(*node, MixingKind::kCombination,
             "writes values of the batch into a tensor that is shared");
    }
    know(node->input(0), of(node->input(0)).value, ruling.outputs[0]);
  }

  std::vector<c10::IValue> values_of(const Subgraph& run) {
    std::vector<c10::IValue> values;
    for (const jit::Value* input : run.inputs()) values.push_back(of(input).value);
    return values;
  }

  std::optional<std::vector<c10::IValue>> part_inputs(const Subgraph& run, int part) {
    std::vector<c10::IValue> values;
    for (const jit::Value* input : run.inputs()) {
      auto value = part_of(of(input).value, of(input).spread, parts_, part);
      if (!value) return std::nullopt;
      values.push_back(std::move(*value));
    }
    return values;
  }

  using Values = std::optional<std::vector<c10::IValue>>;

  Ruling tried(const Subgraph& run, const jit::Node& node, const Values& first,
               const Values& second, const std::vector<c10::IValue>& whole) {
    if (!first || !second) return {std::vector<Spread>(whole.size(), Spread::of(Kind::kMixed))};
    std::vector<c10::IValue> one;
    std::vector<c10::IValue> two;
    try {
      one = run.run(*first);
      two = run.run(*second);
    } catch (const std::exception&) {
      return mixed(whole.size(), MixingKind::kFixedRows,
                   fmt::format("works for {} rows, not for {}: the number of rows is a constant of "
                               "the graph",
                               parts_.rows, parts_.first));
    }
    Ruling ruling;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const auto seen = [&](const c10::IValue& value) {
        return draws(node) ? without_values(value) : value;
      };
      ruling.outputs.push_back(compare(seen(whole[i]), seen(one[i]), seen(two[i]), parts_));
      if (ruling.outputs.back().kind != Kind::kMixed) continue;
      ruling.mixing = MixingKind::kFold;
      ruling.words = fmt::format("gives other values for {} rows than for {} and {} of them",
                                 parts_.rows, parts_.first, parts_.size(1));
    }
    return ruling;
  }

  void note_tried(const jit::Node& node) {
    const std::string name = node.kind().toQualString();
    auto& names = report_->tried;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }

  void check_rule(const Subgraph& run, const jit::Node& node, const Values& first,
                  const Values& second, const std::vector<c10::IValue>& whole,
                  const Ruling& ruling) {
    const Ruling found = tried(run, node, first, second, whole);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const Spread& ruled = ruling.outputs[i];
      const Spread& seen = found.outputs[i];
      // What looks shared may be so by chance (zeros); a mean by count is one by rows where all
      // count.
      if (seen.kind == ruled.kind && seen.dim == ruled.dim && seen.lies_as(ruled)) continue;
      if (ruled.is_reduced() && (seen.is_reduced() || seen.kind == Kind::kSize)) continue;
      report_->broken_rules.push_back(
          fmt::format("{}: the rule says that it {}, trying it that it {}", describe(node),
                      to_text(ruled), to_text(seen)));
    }
  }

  const Graph& graph_;
  const BatchOptions& options_;
  TwoParts parts_;
  BatchReport* report_;
  std::unordered_map<const jit::Value*, Known> known_;
  std::unordered_set<const jit::Node*> told_;
};

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("graph", why); }

bool is_shared(const BatchOptions& options, std::size_t input) {
  return input < options.shared_inputs.size() && options.shared_inputs[input] != 0;
}

std::int64_t rows_of(const Graph& graph, const Tensors& example, const BatchOptions& options) {
  const auto& names = graph.input_names();
  if (example.size() != names.size())
    refuse(fmt::format("the example has {} tensors, but forward takes {}", example.size(),
                       names.size()));
  std::int64_t rows = -1;
  for (std::size_t i = 0; i < example.size(); ++i) {
    if (is_shared(options, i)) continue;
    if (!example[i].defined() || example[i].dim() == 0)
      refuse(fmt::format("input '{}' of the example has no dimension to split; mark it as shared",
                         names[i]));
    if (rows < 0) rows = example[i].size(0);
    if (example[i].size(0) != rows)
      refuse(
          fmt::format("input '{}' of the example has {} rows, others have {}; mark it as shared "
                      "if it is not to be split",
                      names[i], example[i].size(0), rows));
  }
  if (rows < 2)
    refuse(fmt::format("the example has {} rows; two at least are needed to tell samples apart",
                       std::max<std::int64_t>(rows, 0)));
  return rows;
}

}  // namespace

BatchReport analyse_batch(const Graph& graph, const Tensors& example, const BatchOptions& options) {
  BatchReport report;
  Walk walk(graph, options, rows_of(graph, example, options), &report);
  const auto& inputs = graph.ir()->inputs();
  for (std::size_t i = 0; i < example.size(); ++i) {
    walk.know(inputs[i], example[i].detach().clone(),
              is_shared(options, i) ? Spread::shared() : Spread::rows(0));
  }
  for (std::size_t i = 0; i < graph.attributes().size(); ++i) {
    const GraphAttribute& attribute = graph.attributes()[i];
    if (attribute.kind == GraphAttribute::Kind::kMode) {
      walk.know(graph.value_of(i), graph.mode(i), Spread::shared());
      continue;
    }
    // Copies, since batch norm writes into its buffers; learned, so that it shows what depends on
    // it.
    torch::Tensor copy = attribute.tensor.detach().clone();
    copy.requires_grad_(attribute.tensor.requires_grad());
    walk.know(graph.value_of(i), copy, Spread::shared());
  }
  const torch::AutoGradMode with_graph(true);
  const RandomScope random({0, 0, 0, 0}, torch::kCPU);  // the caller's numbers stay where they are
  try {
    walk.block(*graph.ir()->block());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    refuse(fmt::format("the example does not run through the graph: {}", first_line(error.what())));
  }
  for (const jit::Value* output : graph.ir()->outputs())
    report.outputs.push_back(walk.of(output).spread);
  return report;
}

}  // namespace pipewright
