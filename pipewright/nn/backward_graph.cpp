#include "pipewright/nn/backward_graph.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

using torch::Tensor;
using torch::autograd::Engine;
using torch::autograd::variable_list;
using torch::autograd::impl::gradient_edge;

/// Takes the gradient that arrives at a leaf, so that there is none left to accumulate. (Letting it
/// be stored in .grad would copy it into the leaf's strides, and other strides give other bits.)
class TakeGradient : public torch::autograd::FunctionPreHook {
 public:
  explicit TakeGradient(std::shared_ptr<Tensor> taken) : taken_(std::move(taken)) {}

  variable_list operator()(const variable_list& gradients) override {
    *taken_ = gradients.at(0);
    return {Tensor()};
  }

 private:
  std::shared_ptr<Tensor> taken_;
};

/// Lets go of a gradient that the engine was called with, as soon as its node has it. The engine's
/// caller would hold it until all nodes below have run.
class LetGo : public torch::autograd::FunctionPreHook {
 public:
  explicit LetGo(std::shared_ptr<Tensors> held) : held_(std::move(held)) {}

  variable_list operator()(const variable_list& gradients) override {
    for (Tensor& tensor : *held_) tensor = Tensor();
    return gradients;
  }

 private:
  std::shared_ptr<Tensors> held_;
};

}  // namespace

GraphEnds::GraphEnds(const Tensors& outputs) {
  for (const Tensor& output : outputs) {
    const bool needed = output.defined() && output.requires_grad();
    edges.push_back(needed ? gradient_edge(output) : Edge());
    sizes.push_back(output.defined() ? output.sizes().vec() : std::vector<std::int64_t>());
  }
}

Roots find_roots(const GraphEnds& outputs, Tensors output_gradients) {
  internal_check(outputs.edges.size() == output_gradients.size(), "one gradient for every output");
  Roots roots;
  for (size_t i = 0; i < output_gradients.size(); ++i) {
    Tensor& gradient = output_gradients[i];
    if (!outputs.edges[i].is_valid() || !gradient.defined()) continue;
    internal_check(gradient.sizes() == outputs.sizes[i], "a gradient has its output's shape");
    roots.add(outputs.edges[i], std::move(gradient));
  }
  return roots;
}

edge_list leaf_edges(const Tensors& leaves) {
  edge_list edges;
  for (const Tensor& leaf : leaves) {
    const bool needed = leaf.defined() && leaf.requires_grad();
    internal_check(!needed || leaf.is_leaf(), "inputs and separate parameters are leaves");
    edges.push_back(needed ? gradient_edge(leaf) : Edge());
  }
  return edges;
}

std::vector<NodePtr> nodes_below(const edge_list& roots) {
  struct Frame {
    NodePtr node;
    size_t next = 0;
  };
  std::vector<NodePtr> nodes;
  std::unordered_set<Node*> seen;
  std::vector<Frame> path;
  const auto enter = [&](const Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) path.push_back({edge.function});
  };
  for (const Edge& root : roots) {
    enter(root);
    while (!path.empty()) {
      Frame& frame = path.back();
      if (frame.next < frame.node->num_outputs()) {
        enter(frame.node->next_edge(frame.next++));
      } else {
        nodes.push_back(std::move(frame.node));
        path.pop_back();
      }
    }
  }
  return nodes;
}

edge_list make_private(Roots& roots, const Tensors& separate) {
  if (separate.empty()) return {};
  const edge_list shared = leaf_edges(separate);
  edge_list own;
  std::unordered_map<Node*, Edge> own_of;
  for (size_t i = 0; i < separate.size(); ++i) {
    own.push_back(shared[i].is_valid() ? gradient_edge(separate[i].detach().requires_grad_())
                                       : Edge());
    if (shared[i].is_valid()) own_of.emplace(shared[i].function.get(), own.back());
  }
  const auto redirect = [&](edge_list& edges) {
    for (Edge& edge : edges) {
      const auto found = own_of.find(edge.function.get());
      if (found != own_of.end()) edge = found->second;
    }
  };
  for (const NodePtr& node : nodes_below(roots.edges)) {
    redirect(node->next_edges());
    // A write into a view wraps the written function's own node, and checks that both agree.
    auto* slices = dynamic_cast<torch::autograd::CopySlices*>(node.get());
    if (slices != nullptr && slices->fn) redirect(slices->fn->next_edges());
  }
  redirect(roots.edges);
  return own;
}

Tensors run_and_take(Roots roots, const edge_list& leaves) {
  Tensors gradients(leaves.size());
  if (roots.edges.empty()) return gradients;
  std::vector<std::shared_ptr<Tensor>> taken;
  for (const Edge& leaf : leaves) {
    taken.push_back(std::make_shared<Tensor>());
    if (leaf.is_valid()) leaf.function->add_pre_hook(std::make_unique<TakeGradient>(taken.back()));
  }
  const auto held = std::make_shared<Tensors>(std::move(roots.gradients));
  const bool one_root = roots.edges.size() == 1;  // of several the engine itself holds a copy
  if (one_root) roots.edges[0].function->add_pre_hook(std::make_unique<LetGo>(held));
  Engine::get_default_engine().execute(roots.edges, *held, /*keep_graph=*/false,
                                       /*create_graph=*/false, /*accumulate_grad=*/true);
  if (one_root) roots.edges[0].function->pre_hooks().pop_back();
  // Not reached when the run throws, and that is right: a device thread may still be in a hook.
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].is_valid()) leaves[i].function->pre_hooks().pop_back();
    gradients[i] = std::move(*taken[i]);
  }
  return gradients;
}

}  // namespace pipewright
