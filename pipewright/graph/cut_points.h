#pragma once

#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "pipewright/graph/cut.h"
#include "pipewright/graph/graph.h"

namespace pipewright {

/// A graph's nodes in two kinds: those that depend on its inputs, in order, which are cut; and the
/// free ones, which depend on parameters and constants alone and are copied to where they are used.
class CutPlan {
 public:
  /// `outputs`: what the last layer returns.
  CutPlan(const Graph& graph, std::vector<torch::jit::Value*> outputs);

  const std::vector<torch::jit::Node*>& nodes() const { return nodes_; }
  const std::vector<torch::jit::Value*>& outputs() const { return outputs_; }
  bool is_free(const torch::jit::Node* node) const { return free_.contains(node); }

  /// Values from outside that a node uses, also deep inside its branches, but for constants.
  static std::vector<torch::jit::Value*> uses(torch::jit::Node* node);

  /// Whether it writes into a tensor that it was given.
  static bool writes(torch::jit::Node* node);

  /// The free nodes that a node needs, in order, each before what uses it.
  void add_free(torch::jit::Node* node, std::vector<torch::jit::Node*>* to) const;

  /// Whether a value is an input of the graph or made by a node that is cut.
  bool flows(const torch::jit::Value* value) const;
  /// Index into nodes() of its maker; -1 of an input.
  int maker(const torch::jit::Value* value) const;

  /// Places to cut, increasing: a cut at p is before nodes()[p].
  std::vector<int> points(const CutOptions& options) const;
  /// How many values cross at p.
  int crossing(int p) const;

 private:
  bool depends_on_inputs(torch::jit::Node* node) const;
  bool uses_parameters(torch::jit::Node* node) const;
  void find_lives();
  void forbid_between_writes();
  void forbid_between_calls_of_norms();
  std::vector<int> points_within(int most_crossing) const;

  const Graph& graph_;
  std::vector<torch::jit::Value*> outputs_;
  std::vector<torch::jit::Node*> nodes_;
  std::unordered_set<const torch::jit::Node*> free_;
  std::unordered_map<const torch::jit::Node*, int> index_;
  struct Life {
    int maker = -1;
    int first_use = -1;
    int last_use = -1;  // nodes().size(): an output
  };
  std::unordered_map<const torch::jit::Value*, Life> lives_;
  std::vector<char> forbidden_;  // by place
  std::vector<int> crossing_;    // by place
};

}  // namespace pipewright
