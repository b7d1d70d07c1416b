#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "pipewright/graph/batch_rules.h"
#include "pipewright/graph/graph.h"
#include "pipewright/graph/spread.h"

namespace pipewright {

/// An operation at which samples are not independent.
struct Mixing {
  MixingKind kind = MixingKind::kOverBatch;
  std::string operation;  // "aten::softmax (model.py:12)"
  std::string words;      // "takes a softmax over dimension 0, which is the batch"
};

struct BatchOptions {
  std::vector<char> shared_inputs = {};  // by input, as in a Batch; shorter: the rest is not shared
  /// Tries operations that have a rule too, and reports rules that do not hold. For tests.
  bool check_rules = false;
};

/// What the batch does in a graph.
struct BatchReport {
  std::vector<Spread> outputs;
  std::vector<Mixing> mixings;            // in the graph's order, each operation once
  std::vector<std::string> reduced;       // "aten::mean (model.py:3) is a mean over the batch"
  std::vector<std::string> tried;         // operations without a rule, each kind once, in order
  std::vector<std::string> broken_rules;  // of check_rules
  std::unordered_map<const torch::jit::Value*, Spread> spreads;  // of every value that was made

  /// For people: inputs, outputs, what reduces the batch, what mixes samples.
  std::string text() const;

  /// Throws InvalidArgument that names all that mixes samples, but for batch norms with
  /// `allow_batch_norm`: those then normalise by micro-batch.
  void check(bool allow_batch_norm = false) const;
};

/// Walks the graph with the values of a small batch (two rows at least, five are good) and finds
/// for every value how it depends on the batch. Branches and loops are walked as they run. Known
/// operations are judged by rules; others, and those that only move values, are tried: run for the
/// whole batch and for two parts of it, and compared. The graph's tensors are not changed. Throws
/// InvalidArgument where the inputs do not fit the graph.
BatchReport analyse_batch(const Graph& graph, const Tensors& example,
                          const BatchOptions& options = {});

}  // namespace pipewright
