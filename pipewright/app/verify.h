#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/app/measure.h"
#include "pipewright/config/config.h"
#include "pipewright/nn/loss.h"
#include "pipewright/nn/sequence.h"
#include "pipewright/optim/optimizer.h"
#include "pipewright/train/batch.h"
#include "pipewright/train/strategy.h"

namespace pipewright::app {

/// What is verified: a model that can be made again and again, the same each time, and how it is
/// trained.
struct Subject {
  std::function<Sequence()> make;
  Loss loss;
  OptimizerFactory optimizer;
  Strategy strategy;           // the user's own; ranks are threads here
  std::vector<Batch> batches;  // the first for gradients, all for weights
  std::string recompute;       // what the strategy's is called
};

struct VerifyOptions {
  double tolerance = 1e-10;  // of gradients in float64, relative
  bool full = false;         // every recompute mode with every schedule and number of ranks
};

/// Where two results differ first, in the order of the layers.
struct Difference {
  std::string what;    // "gradient", "weight", "loss"
  std::string layer;   // empty: of the loss
  std::string tensor;  // as `layer.name`
  double relative = 0;
  std::string cause;  // what was found out about it; may be empty

  std::string words() const;
};

/// One way to train.
struct VerifiedCase {
  std::string schedule;
  int ranks = 1;
  int chunks = 1;
  std::string recompute;
  double gradient_difference = 0;  // the largest, relative
  bool bitwise = true;             // loss and weights are those of the first case, in every bit
  std::optional<Difference> gradients;  // where they differ by more than the tolerance
  std::optional<Difference> bits;

  std::string name() const;
  bool passed() const { return !gradients && !bits; }
};

struct Verification {
  std::string dtype;      // of the gradients that were compared: "float64" or "float32"
  double tolerance = 0;   // that was held to
  std::string reference;  // what they were compared with, in words
  int micro_batches = 1;
  int steps = 0;  // that weights were compared after
  std::vector<VerifiedCase> cases;
  std::vector<std::string> notes;

  bool passed() const;
  bool bitwise() const;
  double max_relative_difference() const;
  const VerifiedCase* first_failed() const;  // null: none
};

/// Told each case when it is done.
using OnCase = std::function<void(const VerifiedCase&)>;

/// Holds every schedule, 1 to 4 ranks (and the subject's own) and the recompute modes to plain
/// single-device training: gradients to those of one forward and backward over the whole batch, in
/// float64 where the model takes it; weights after some steps bit by bit to those of one rank.
/// Where layers draw at random or keep batch statistics, the reference is a plain loop over the
/// same micro-batches. Gradients are relative to the largest entry of their tensor, or to a
/// millionth of the largest of all where that is more: a gradient that is zero but for rounding has
/// no size of its own.
Verification verify(const Subject& subject, const VerifyOptions& options, const OnCase& on_case);

/// The same of a config.
Verification verify_config(const config::Config& config, const VerifyOptions& options,
                           const OnCase& on_case, const Note& note);

}  // namespace pipewright::app
