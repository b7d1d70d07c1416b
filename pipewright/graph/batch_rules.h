#pragma once

#include <torch/script.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/graph/spread.h"

namespace pipewright {

/// Why samples are not independent at an operation.
enum class MixingKind {
  kBatchNorm,    // normalises by the batch's statistics
  kOverBatch,    // a softmax, a maximum, a cumulative sum over the dimension of the batch
  kPairs,        // every sample with every other: in-batch negatives
  kCombination,  // a sample with a sum over the batch, or such a sum in something that is not
                 // linear
  kFold,         // samples are rearranged so that they lie between each other
  kBranch,       // what runs depends on values of the batch
  kFixedRows,    // works for one number of rows only
};

/// An operation as its rule sees it: values are those of a small batch.
struct OperationView {
  const torch::jit::Node& node;
  const std::vector<c10::IValue>& inputs;
  const std::vector<Spread>& spreads;  // of inputs
  const std::vector<c10::IValue>& outputs;
  std::int64_t rows;

  /// By the name in the operation's schema; none where there is no such argument.
  std::optional<std::size_t> argument(const std::string& name) const;
  std::optional<std::int64_t> integer(const std::string& name) const;
  torch::Tensor tensor(std::size_t input) const { return inputs[input].toTensor(); }
};

struct Ruling {
  std::vector<Spread> outputs;
  std::optional<MixingKind> mixing = {};
  std::string words = {};  // of the mixing: "takes a softmax over dimension 0, which is the batch"
};

Ruling mixed(std::size_t num_outputs, MixingKind kind, std::string words);

/// What is known of an operation without trying it; none for an operation that has no rule.
std::optional<Ruling> rule_of(const OperationView& op);

using Rule = std::function<std::optional<Ruling>(const OperationView&)>;
using Rules = std::map<std::string, Rule>;  // by name, without aten:: and the _ of in-place ones

// Parts of the table.
void add_reduction_rules(Rules* rules);
void add_product_rules(Rules* rules);
void add_loss_rules(Rules* rules);

/// Of operations on sums and means over the batch: what is linear keeps them.
Ruling reduced_rule(const OperationView& op, const std::string& name);

}  // namespace pipewright
