#pragma once

#include <cstdint>
#include <string>

#include "pipewright/input/pairs.h"

namespace pipewright {

/// Sentences and their translation into a made language: adjectives go behind
/// their nouns and both take the ending of many, the verb goes to the end. A target follows from
/// its source, so that a model can get all of them right.
///
///     the old sailor sees three red boats  -->  la maris vek tri barkan rujn vidar
class GeneratedPairs final : public PairSet {
 public:
  /// Throws InvalidArgument for less than one pair.
  GeneratedPairs(std::int64_t pairs, std::uint64_t seed);

  std::int64_t size() const override { return pairs_; }
  SentencePair pair(std::int64_t number) const override;

 private:
  std::int64_t pairs_;
  std::uint64_t seed_;
};

/// The text of a vocab.txt that has all words of both languages whole, BERT's five special tokens,
/// and all letters as pieces.
std::string pair_vocabulary();

}  // namespace pipewright
