#include "pipewright/graph/cut.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <map>
#include <set>

#include "pipewright/base/error.h"
#include "pipewright/graph/cut_points.h"
#include "pipewright/graph/graph_layer.h"

namespace jit = torch::jit;

namespace pipewright {
namespace {

/// A layer while it is put together.
struct Draft {
  std::vector<jit::Node*> nodes;
  std::vector<jit::Value*> inputs;   // from the layer before, then what is popped
  std::vector<jit::Value*> outputs;  // to the layer after, then what is stashed
  std::vector<jit::Value*> stashed;
  std::vector<jit::Value*> popped;
  LayerOptions options;
};

/// Brings each value from the layer that makes it to the next that uses it, and on from there:
///
///     layer   0     1     2     3
///     v       made ------ used  used      0 stashes it for 2, 2 hands it to 3
class Cutter {
 public:
  Cutter(const Graph& graph, const CutPlan& plan, std::vector<int> points)
      : graph_(graph), plan_(plan), points_(std::move(points)), drafts_(points_.size() + 1) {
    for (std::size_t i = 0; i < graph.input_names().size(); ++i)
      values_.push_back(graph.ir()->inputs()[i]);
    for (jit::Node* node : plan.nodes())
      values_.insert(values_.end(), node->outputs().begin(), node->outputs().end());
    find_stops();
    join_neighbours();
  }

  CutModel make() {
    place_nodes();
    drafts_[0].inputs.assign(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(
                                                                    graph_.input_names().size()));
    for (jit::Value* value : values_) route(value);
    CutModel result;
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      const std::string name = name_of(drafts_[i]);
      if (i > 0) result.points.push_back({name, plan_.crossing(points_[i - 1])});
      add(name, i, &result.model);
    }
    return result;
  }

 private:
  int num_layers() const { return static_cast<int>(drafts_.size()); }
  Draft& draft(int layer) { return drafts_[static_cast<std::size_t>(layer)]; }

  int layer_of(int node) const {
    return static_cast<int>(std::upper_bound(points_.begin(), points_.end(), node) -
                            points_.begin());
  }

  /// The layers that hold each value: its maker, and its users after that.
  void find_stops() {
    for (const jit::Value* value : values_) stops_[value] = {layer_of(plan_.maker(value))};
    for (std::size_t i = 0; i < plan_.nodes().size(); ++i) {
      for (const jit::Value* value : CutPlan::uses(plan_.nodes()[i])) {
        if (plan_.flows(value)) stops_[value].insert(layer_of(static_cast<int>(i)));
      }
    }
    for (const jit::Value* value : plan_.outputs()) {
      if (plan_.flows(value)) stops_[value].insert(num_layers() - 1);
    }
  }

  /// A layer must hand something to the one after it. Where that needs nothing of it (the second of
  /// two towers), a value that crosses here goes through both.
  void join_neighbours() {
    for (int layer = 0; layer + 1 < num_layers(); ++layer) {
      const auto hands_on = [&](const jit::Value* value) {
        return stops_[value].contains(layer) && stops_[value].contains(layer + 1);
      };
      if (std::any_of(values_.begin(), values_.end(), hands_on)) continue;
      const auto crosses = [&](const jit::Value* value) {
        return *stops_[value].begin() <= layer && *stops_[value].rbegin() > layer;
      };
      const auto found = std::find_if(values_.begin(), values_.end(), crosses);
      internal_check(found != values_.end(), "something crosses where a graph is cut");
      stops_[*found].insert({layer, layer + 1});
    }
  }

  void place_nodes() {
    for (std::size_t i = 0; i < plan_.nodes().size(); ++i) {
      Draft& to = draft(layer_of(static_cast<int>(i)));
      plan_.add_free(plan_.nodes()[i], &to.nodes);
      to.nodes.push_back(plan_.nodes()[i]);
      if (CutPlan::writes(plan_.nodes()[i])) to.options.in_place = true;
    }
    // Outputs that depend on parameters alone.
    for (jit::Value* value : plan_.outputs()) {
      if (!plan_.is_free(value->node())) continue;
      plan_.add_free(value->node(), &drafts_.back().nodes);
      drafts_.back().nodes.push_back(value->node());
    }
  }

  void route(jit::Value* value) {
    const std::set<int>& stops = stops_[value];
    for (auto to = std::next(stops.begin()); to != stops.end(); ++to) {
      const int from = *std::prev(to);
      if (*to == from + 1) {
        draft(from).outputs.push_back(value);
        draft(*to).inputs.push_back(value);
        continue;
      }
      const std::string name = fmt::format("skip{}", num_skips_++);
      draft(from).stashed.push_back(value);
      draft(from).options.stash.push_back(name);
      draft(*to).popped.push_back(value);
      draft(*to).options.pop.push_back(name);
    }
  }

  /// After the module of its first parameter; "layer" without one.
  std::string name_of(const Draft& of) {
    std::string name;
    for (jit::Node* node : of.nodes) {
      for (const jit::Value* value : CutPlan::uses(node)) {
        const auto attribute = graph_.attribute_of(value);
        if (!attribute || !name.empty()) continue;
        const GraphAttribute& found = graph_.attributes()[*attribute];
        if (found.kind != GraphAttribute::Kind::kParameter) continue;
        const auto dot = found.name.rfind('.');
        name = dot == std::string::npos ? found.name : found.name.substr(0, dot);
      }
    }
    if (name.empty()) name = "layer";
    std::replace(name.begin(), name.end(), '.', '_');
    const int uses = ++names_[name];
    return uses == 1 ? name : fmt::format("{}_use{}", name, uses);
  }

  void add(const std::string& name, std::size_t index, Sequence* model) {
    Draft& made = drafts_[index];
    std::vector<jit::Value*> inputs = made.inputs;
    inputs.insert(inputs.end(), made.popped.begin(), made.popped.end());
    std::vector<jit::Value*> outputs = index + 1 == drafts_.size() ? plan_.outputs() : made.outputs;
    outputs.insert(outputs.end(), made.stashed.begin(), made.stashed.end());
    auto layer = std::make_shared<GraphLayer>(graph_, Subgraph(made.nodes, outputs, name), inputs);
    auto* raw = layer.get();
    model->add_layer(
        name, [raw](const Tensors& x) { return raw->forward(x); }, std::move(layer), made.options);
  }

  const Graph& graph_;
  const CutPlan& plan_;
  std::vector<int> points_;
  std::vector<Draft> drafts_;
  std::vector<jit::Value*> values_;  // that flow, in order
  std::map<const jit::Value*, std::set<int>> stops_;
  std::map<std::string, int> names_;
  int num_skips_ = 0;
};

CutModel cut_to(const Graph& graph, std::vector<jit::Value*> outputs, const CutOptions& options) {
  if (options.most_crossing < 0 || options.wanted_layers < 1) {
    throw InvalidArgument(
        "graph",
        fmt::format("cannot cut with most_crossing {} and wanted_layers {}; they are 0 and "
                    "1 at least",
                    options.most_crossing, options.wanted_layers));
  }
  if (graph.parameters().empty()) {
    throw InvalidArgument(
        "graph",
        "the graph has no parameters, so there is nothing to train; if it was made "
        "by torch.jit.freeze, export it without");
  }
  const CutPlan plan(graph, std::move(outputs));
  return Cutter(graph, plan, plan.points(options)).make();
}

// ---- A loss in the graph ----

[[noreturn]] void refuse_loss(const std::string& why) {
  throw InvalidArgument("graph", "the graph's output is no loss to train with: " + why);
}

Loss mean_loss() {
  Loss loss;
  loss.weight = [](const Tensors& targets) { return static_cast<double>(targets[0].size(0)); };
  loss.value = [](const Tensors& outputs, const Tensors& targets) -> LossValue {
    const auto rows = static_cast<double>(targets[0].size(0));
    return {outputs[0] * rows, rows};
  };
  return loss;
}

Loss summed_loss() {
  Loss loss = mean_loss();
  loss.value = [](const Tensors& outputs, const Tensors& targets) -> LossValue {
    return {outputs[0], static_cast<double>(targets[0].size(0))};
  };
  return loss;
}

/// outputs[1]: the count itself, or the targets to be counted.
Loss counted_loss(bool by_targets, std::int64_t ignored) {
  Loss loss;
  loss.value = [=](const Tensors& outputs, const Tensors&) -> LossValue {
    const torch::Tensor counted = by_targets ? (outputs[1] != ignored).sum() : outputs[1].detach();
    const auto weight = counted.item<double>();
    if (weight == 0) {
      throw InvalidArgument("loss",
                            "nothing of a micro-batch counts in its loss (all targets are "
                            "ignored or masked); use fewer micro-batches");
    }
    return {outputs[0] * weight, weight};
  };
  return loss;
}

jit::Value* in_graph(const Graph& graph, const jit::Value* value) {
  if (value->node() != graph.ir()->param_node() &&
      value->node()->owningBlock() != graph.ir()->block())
    refuse_loss("what it divides by is made inside a branch or a loop");
  return const_cast<jit::Value*>(value);
}

}  // namespace

CutModel cut(const Graph& graph, const CutOptions& options) {
  return cut_to(graph, graph.ir()->outputs().vec(), options);
}

CutLoss cut_with_loss(const Graph& graph, const BatchReport& report, const CutOptions& options,
                      bool divide_sum) {
  if (report.outputs.size() != 1)
    refuse_loss(fmt::format("it has {} outputs, not one", report.outputs.size()));
  const Spread& spread = report.outputs[0];
  std::vector<jit::Value*> outputs = graph.ir()->outputs().vec();
  Loss loss;
  switch (spread.kind) {
    case Spread::Kind::kMean: loss = mean_loss(); break;
    case Spread::Kind::kSum:
      if (!divide_sum)
        refuse_loss(
            "it is a sum over the batch, which a trainer divides by the rows; export the "
            "mean, or ask for divide_sum");
      loss = summed_loss();
      break;
    case Spread::Kind::kRatio:
      outputs.push_back(in_graph(graph, spread.targets ? spread.targets : spread.count));
      loss = counted_loss(spread.targets != nullptr, spread.ignored);
      break;
    default: refuse_loss("it " + to_text(spread));
  }
  return {cut_to(graph, std::move(outputs), options).model, std::move(loss)};
}

}  // namespace pipewright
