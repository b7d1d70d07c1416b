#pragma once

#include <torch/script.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/graph/graph.h"

namespace pipewright {

/// How a value of a graph depends on the batch.
struct Spread {
  enum class Kind {
    kShared,  // not at all: the same for every micro-batch
    kRows,    // a tensor; a dimension carries the samples, each entry depends on its sample alone
    kSize,    // a number: `fold` times the rows
    kSum,     // a sum over the samples of the batch
    kMean,    // a mean over them
    kRatio,   // a mean by count: a sum over samples divided by another one that is not learned
    kMixed,   // of several samples, in some other way
    kParts,   // a list or tuple whose elements differ
  };
  Kind kind = Kind::kShared;
  std::int64_t dim = 0;            // of kRows
  std::int64_t fold = 1;           // of kRows: neighbouring entries of `dim` a sample; of kSize
  std::int64_t outer = 1;          // of kRows: how often all samples follow each other in `dim`
  std::vector<Spread> parts = {};  // of kParts
  const torch::jit::Value* count = nullptr;    // of kRatio: what is divided by; or null:
  const torch::jit::Value* targets = nullptr;  // those that are not `ignored` are counted
  std::int64_t ignored = 0;

  /// The same samples in the same order; dimensions may differ.
  bool lies_as(const Spread& other) const { return fold == other.fold && outer == other.outer; }
  bool operator==(const Spread&) const = default;

  static Spread shared() { return {}; }
  static Spread rows(std::int64_t dim, std::int64_t fold = 1, std::int64_t outer = 1) {
    return {Kind::kRows, dim, fold, outer};
  }
  static Spread of(Kind kind) { return {kind}; }

  bool is_reduced() const {
    return kind == Kind::kSum || kind == Kind::kMean || kind == Kind::kRatio;
  }
};

/// "carries the batch in dimension 0", "is the mean over the batch": a clause for a sentence.
std::string to_text(const Spread& spread);

/// A batch of so many rows and how the analysis splits it in two, the parts not equal if they need
/// not be: then a sum, a mean and a shared value can be told apart.
struct TwoParts {
  explicit TwoParts(std::int64_t all)
      : rows(all), first((all + 1) / 2 - (all > 3 && all % 2 == 0)) {}
  std::int64_t rows;
  std::int64_t first;
  std::int64_t start(int part) const { return part == 0 ? 0 : first; }
  std::int64_t size(int part) const { return part == 0 ? first : rows - first; }
};

/// A part's value, from that of the whole batch. Tensors are copies. None where a spread cannot be
/// split: sums, means, mixed values.
std::optional<c10::IValue> part_of(const c10::IValue& whole, const Spread& spread,
                                   const TwoParts& parts, int part);

/// What the value of the whole batch is of those of its parts: the spread of an operation's output,
/// found by running it. kMixed where it is nothing that a Spread can say.
Spread compare(const c10::IValue& whole, const c10::IValue& first, const c10::IValue& second,
               const TwoParts& parts);

}  // namespace pipewright
