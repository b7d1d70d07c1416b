#include "pipewright/nn/backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>
#include <vector>

#include "pipewright/base/error.h"
#include "pipewright/nn/backward_graph.h"
#include "pipewright/nn/leaf_gradient.h"

namespace pipewright {
namespace {

using torch::autograd::Engine;
using torch::autograd::variable_list;

BackwardResult run_whole(Roots roots, const edge_list& inputs, const edge_list& separate) {
  edge_list leaves = inputs;
  leaves.insert(leaves.end(), separate.begin(), separate.end());
  Tensors gradients = run_and_take(std::move(roots), leaves);
  BackwardResult result;
  const auto middle = gradients.begin() + static_cast<std::ptrdiff_t>(inputs.size());
  result.input_gradients.assign(std::make_move_iterator(gradients.begin()),
                                std::make_move_iterator(middle));
  result.separate_gradients.assign(std::make_move_iterator(middle),
                                   std::make_move_iterator(gradients.end()));
  return result;
}

//     output --> [chain] --> [mixed] --> [chain] --> input
//                               |                                I runs the upper line,
//                               `-----> [weight] --> parameter   W mixed again and what hangs below
struct Graph {
  std::unordered_set<Node*> to_input;  // chain, mixed, and the inputs' own accumulators
  std::vector<NodePtr> chain;          // lead to inputs only
  std::vector<NodePtr> mixed;          // lead to inputs by some edges, to weights alone by others
};

Graph sort_nodes(const edge_list& roots, const edge_list& inputs) {
  Graph graph;
  std::unordered_set<Node*> leaves;
  for (const Edge& input : inputs) {
    if (input.is_valid()) leaves.insert(input.function.get());
  }
  for (NodePtr& node : nodes_below(roots)) {
    bool to_input = false;
    bool to_weight = false;
    for (const Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      (graph.to_input.count(edge.function.get()) != 0 ? to_input : to_weight) = true;
    }
    const bool is_input = leaves.count(node.get()) != 0;
    if (!to_input && !is_input) continue;
    graph.to_input.insert(node.get());
    if (!is_input) (to_weight ? graph.mixed : graph.chain).push_back(std::move(node));
  }
  return graph;
}

/// Whether a node computes only what its valid edges ask for, so that running it once for some
/// edges and once for the others is running it once. True of LibTorch's own ("traceable") nodes;
/// not of custom functions, nor of CopySlices, a write into a view: in 1.13 it runs all its edges
/// even when asked for one.
bool runs_in_halves(Node& node) {
  if (has_hooks(node)) return false;
  return node.is_traceable() || dynamic_cast<torch::autograd::CopyBackwards*>(&node) != nullptr;
}

/// Frees what its node saved as soon as the node has run. The engine would do that itself, but for
/// all nodes or none, and the mixed ones run again.
class ReleaseWhenRun : public torch::autograd::FunctionPostHook {
 public:
  explicit ReleaseWhenRun(Node& node) : node_(node) {}

  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    node_.release_variables();
    return outputs;
  }

 private:
  Node& node_;  // owns this hook
};

/// The gradient that arrived at each edge of `captured`, from a run of the chain and mixed nodes.
Tensors run_input_half(const Roots& roots, const Graph& graph, const edge_list& captured) {
  for (const NodePtr& node : graph.chain) {
    node->add_post_hook(std::make_unique<ReleaseWhenRun>(*node));
  }
  return Engine::get_default_engine().execute(roots.edges, roots.gradients, /*keep_graph=*/true,
                                              /*create_graph=*/false, /*accumulate_grad=*/false,
                                              captured);
}

/// Takes the edges towards inputs out of the mixed nodes: the weight half then neither computes
/// them again nor keeps the chain alive.
void cut_chain(const Graph& graph) {
  for (const NodePtr& node : graph.mixed) {
    for (Edge& edge : node->next_edges()) {
      if (edge.is_valid() && graph.to_input.count(edge.function.get()) != 0) edge = Edge();
    }
  }
}

/// Every place where a gradient enters a mixed node.
edge_list entries(const Graph& graph) {
  edge_list edges;
  for (const NodePtr& node : graph.mixed) {
    for (uint32_t i = 0; i < node->num_inputs(); ++i) edges.emplace_back(node, i);
  }
  return edges;
}

/// Runs the input half: returns the gradients of `inputs`, and leaves in `roots` what the weight
/// half starts from.
Tensors run_and_cut(Roots& roots, const Graph& graph, const edge_list& inputs) {
  Roots to_input;
  Roots to_weight;
  for (size_t i = 0; i < roots.edges.size(); ++i) {
    const bool up = graph.to_input.count(roots.edges[i].function.get()) != 0;
    (up ? to_input : to_weight).add(std::move(roots.edges[i]), std::move(roots.gradients[i]));
  }
  roots = std::move(to_weight);
  Tensors input_gradients(inputs.size());
  if (to_input.edges.empty()) return input_gradients;

  edge_list captured = entries(graph);
  const size_t num_entries = captured.size();
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(captured),
               [](const Edge& edge) { return edge.is_valid(); });
  Tensors gradients = run_input_half(to_input, graph, captured);
  cut_chain(graph);
  for (size_t i = 0; i < num_entries; ++i) {
    if (gradients[i].defined()) roots.add(std::move(captured[i]), std::move(gradients[i]));
  }
  auto next = gradients.begin() + static_cast<std::ptrdiff_t>(num_entries);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_valid()) input_gradients[i] = std::move(*next++);
  }
  return input_gradients;
}

}  // namespace

BackwardResult backward(const GraphEnds& outputs, Tensors output_gradients, const Tensors& inputs,
                        const Tensors& separate) {
  Roots roots = find_roots(outputs, std::move(output_gradients));
  const edge_list own = make_private(roots, separate);
  return run_whole(std::move(roots), leaf_edges(inputs), own);
}

struct WeightHalf::Work {
  Roots roots;
  edge_list separate;            // what to take
  Tensors separate_gradients{};  // or what was taken already, where the input half did it all
};

WeightHalf::WeightHalf() = default;
WeightHalf::WeightHalf(std::unique_ptr<Work> work) : work_(std::move(work)) {}
WeightHalf::~WeightHalf() = default;
WeightHalf::WeightHalf(WeightHalf&&) noexcept = default;
WeightHalf& WeightHalf::operator=(WeightHalf&&) noexcept = default;

Tensors WeightHalf::run() {
  internal_check(work_ != nullptr, "a weight half runs once");
  const std::unique_ptr<Work> work = std::move(work_);
  if (work->roots.edges.empty()) return std::move(work->separate_gradients);
  return run_and_take(std::move(work->roots), work->separate);
}

InputHalf backward_input(const GraphEnds& outputs, Tensors output_gradients, const Tensors& inputs,
                         const Tensors& separate) {
  auto work = std::make_unique<WeightHalf::Work>();
  work->roots = find_roots(outputs, std::move(output_gradients));
  work->separate = make_private(work->roots, separate);
  work->separate_gradients.resize(separate.size());
  const edge_list leaves = leaf_edges(inputs);
  const Graph graph = sort_nodes(work->roots.edges, leaves);
  InputHalf half;
  if (std::all_of(graph.mixed.begin(), graph.mixed.end(),
                  [](const NodePtr& node) { return runs_in_halves(*node); })) {
    half.input_gradients = run_and_cut(work->roots, graph, leaves);
  } else {
    BackwardResult whole = run_whole(std::exchange(work->roots, {}), leaves, work->separate);
    half.input_gradients = std::move(whole.input_gradients);
    work->separate_gradients = std::move(whole.separate_gradients);
  }
  half.weight_half = WeightHalf(std::move(work));
  return half;
}

}  // namespace pipewright
