#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pipewright/data/source.h"
#include "pipewright/input/pairs.h"
#include "pipewright/input/tokenizer.h"

namespace pipewright {

/// What was done to pairs so that they fit.
struct PairReport {
  std::int64_t pairs = 0;      // that are used
  std::int64_t empty = 0;      // left out: one of the sentences has no token
  std::int64_t shortened = 0;  // used without the tokens beyond the length

  std::string text() const;  // for people, one line
};

/// Pairs of sentences for an encoder-decoder, filled up with pad():
///
///     inputs[0]   (B, S)  source end() pad() ...
///     inputs[1]   (B, T)  begin() target pad() ...
///     targets[0]  (B, T)  target end(), then kIgnoredTarget ...
///
/// All pairs are cut into tokens once when this is made, to count those that do not fit.
class PairSource final : public DataSource {
 public:
  struct Options {
    std::int64_t source_length = 64;  // S, with the end()
    std::int64_t target_length = 64;  // T
  };

  /// Throws InvalidArgument where no pair is left.
  PairSource(std::shared_ptr<const PairSet> pairs, std::shared_ptr<const Tokenizer> source,
             std::shared_ptr<const Tokenizer> target, const Options& options);

  std::int64_t size() const override { return report_.pairs; }
  SampleBatch batch(std::span<const std::int64_t> samples, std::int64_t epoch) const override;
  const PairReport& report() const { return report_; }

 private:
  std::int64_t pair_of(std::int64_t sample) const;

  std::shared_ptr<const PairSet> pairs_;
  std::shared_ptr<const Tokenizer> source_;
  std::shared_ptr<const Tokenizer> target_;
  Options options_;
  PairReport report_;
  std::vector<std::int64_t> used_;  // the pairs' numbers; empty: all of them
};

}  // namespace pipewright
