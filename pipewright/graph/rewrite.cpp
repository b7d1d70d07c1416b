#include "pipewright/graph/rewrite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <sstream>

#include "pipewright/base/error.h"
#include "pipewright/graph/cut_points.h"

namespace jit = torch::jit;

namespace pipewright {
namespace {

using Kind = Spread::Kind;

std::string constant_text(const jit::Value* value) {
  const auto constant = jit::toIValue(value);
  if (!constant || constant->isNone()) return "None";
  if (constant->isTensor()) return "a constant tensor";
  std::ostringstream text;
  text << *constant;
  return text.str();
}

/// Names of values: those of inputs and attributes, numbers for the rest in order of their making.
class Names {
 public:
  explicit Names(const Graph& graph) : graph_(graph) {}

  std::string of(const jit::Value* value) {
    if (value->node()->kind() == c10::prim::Constant) return constant_text(value);
    if (const auto attribute = graph_.attribute_of(value))
      return graph_.attributes()[*attribute].name;
    if (value->node() == graph_.ir()->param_node()) return graph_.input_names()[value->offset()];
    const auto [found, is_new] = numbers_.try_emplace(value, numbers_.size() + 1);
    return fmt::format("%{}", found->second);
  }

 private:
  const Graph& graph_;
  std::unordered_map<const jit::Value*, std::size_t> numbers_;
};

bool depends_on_batch(const BatchReport& report, const jit::Value* value) {
  const auto found = report.spreads.find(value);
  return found != report.spreads.end() && found->second.kind != Kind::kShared;
}

/// aten::linear -> linear; prim::If says what it holds.
std::string name_of(const jit::Node& node) {
  std::string name = node.kind().toUnqualString();
  std::size_t inside = 0;
  for (const jit::Block* block : node.blocks())
    inside += static_cast<std::size_t>(std::distance(block->nodes().begin(), block->nodes().end()));
  return inside == 0 ? name : fmt::format("{} of {} operations", name, inside);
}

}  // namespace

MicroBatchView::MicroBatchView(const Graph& graph, const BatchReport& report)
    : output_spreads_(report.outputs) {
  Names names(graph);
  const auto note = [&](const jit::Value* value) {
    if (depends_on_batch(report, value)) of_batch_.push_back(names.of(value));
  };
  for (std::size_t i = 0; i < graph.input_names().size(); ++i) note(graph.ir()->inputs()[i]);
  for (jit::Node* node : graph.ir()->nodes()) {
    if (node->kind() == c10::prim::Constant) continue;
    GraphLine line;
    line.name = name_of(*node);
    line.source = source_line(*node);
    for (const jit::Value* input : node->inputs()) line.arguments.push_back(names.of(input));
    if (!node->blocks().empty()) {  // what is used inside, too
      for (const jit::Value* value : CutPlan::uses(node)) {
        const std::string name = names.of(value);
        auto& known = line.arguments;
        if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
      }
    }
    for (const jit::Value* output : node->outputs()) {
      line.results.push_back(names.of(output));
      line.replicated = line.replicated || depends_on_batch(report, output);
      note(output);
    }
    lines_.push_back(std::move(line));
  }
  std::sort(of_batch_.begin(), of_batch_.end());
  for (const jit::Value* output : graph.ir()->outputs()) outputs_.push_back(names.of(output));
  for (const GraphAttribute& parameter : graph.parameters()) {
    if (parameter.tensor.requires_grad()) parameters_.push_back(parameter.name);
  }
}

std::string MicroBatchView::copied(const std::string& value, const std::string& copy) const {
  const bool differs = std::binary_search(of_batch_.begin(), of_batch_.end(), value);
  return differs && !copy.empty() ? fmt::format("{}[{}]", value, copy) : value;
}

std::string MicroBatchView::line_text(const GraphLine& line, const std::string& copy) const {
  std::vector<std::string> results;
  std::vector<std::string> arguments;
  for (const std::string& value : line.results) results.push_back(copied(value, copy));
  for (const std::string& value : line.arguments) arguments.push_back(copied(value, copy));
  const std::string left = results.empty() ? "" : fmt::format("{} = ", fmt::join(results, ", "));
  return fmt::format("{}{}({})", left, line.name, fmt::join(arguments, ", "));
}

std::string MicroBatchView::before() const {
  std::string text = fmt::format("graph of {} operations:\n", lines_.size());
  for (const GraphLine& line : lines_)
    text += fmt::format("  {}  # {}\n", line_text(line, ""), line.source);
  return text + fmt::format("  return {}\n", fmt::join(outputs_, ", "));
}

std::vector<std::string> MicroBatchView::aggregation(int micro_batches) const {
  std::vector<std::string> lines;
  const int last = micro_batches - 1;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const std::string all = micro_batches == 1
                                ? copied(outputs_[i], "0")
                                : fmt::format("{} .. {}", copied(outputs_[i], "0"),
                                              copied(outputs_[i], std::to_string(last)));
    std::string how;
    switch (output_spreads_[i].kind) {
      case Kind::kShared: how = outputs_[i]; break;
      case Kind::kRows:
        how = fmt::format("concatenate({}) along dimension {}", all, output_spreads_[i].dim);
        break;
      case Kind::kSum: how = fmt::format("add({})", all); break;
      case Kind::kMean: how = fmt::format("mean({}) weighted by rows", all); break;
      case Kind::kRatio: how = fmt::format("mean({}) weighted by count", all); break;
      default: how = fmt::format("none: {} mixes samples", outputs_[i]);
    }
    lines.push_back(fmt::format("output {} = {}", i, how));
  }
  for (const std::string& parameter : parameters_) {
    lines.push_back(
        fmt::format("{}.grad = add(weight[m] * grad[m]) for m = 0 .. {}", parameter, last));
  }
  return lines;
}

std::string MicroBatchView::after(int micro_batches) const {
  if (micro_batches < 1) {
    throw InvalidArgument("graph", fmt::format("cannot copy a graph for {} micro-batches; use one "
                                               "at least",
                                               micro_batches));
  }
  std::string text = "shared, once:\n";
  for (const GraphLine& line : lines_)
    if (!line.replicated) text += fmt::format("  {}\n", line_text(line, ""));
  text += fmt::format("replicated, for m = 0 .. {}:\n", micro_batches - 1);
  for (const GraphLine& line : lines_)
    if (line.replicated) text += fmt::format("  {}\n", line_text(line, "m"));
  text += "aggregation, in the order of micro-batches:\n";
  for (const std::string& line : aggregation(micro_batches)) text += fmt::format("  {}\n", line);
  return text;
}

}  // namespace pipewright
