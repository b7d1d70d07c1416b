#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/input/sentences.h"

namespace pipewright {

/// Characters as tokens: each character's place in the vocabulary.
class CharVocabulary {
 public:
  /// The vocabulary is the characters of `characters`, in their order. Throws InvalidArgument for
  /// none, or for one that stands there twice.
  explicit CharVocabulary(std::string_view characters);

  std::int64_t size() const { return static_cast<std::int64_t>(characters_.size()); }
  /// Throws InvalidArgument for a character that is not in the vocabulary.
  std::vector<std::int64_t> encode(std::string_view text) const;
  /// Throws InvalidArgument for a token that is not in the vocabulary.
  std::string decode(const std::vector<std::int64_t>& tokens) const;

 private:
  std::string characters_;
  std::vector<std::int64_t> token_of_;  // by byte; -1: not in the vocabulary
};

/// All characters that TextGenerator writes.
CharVocabulary text_vocabulary();

/// B sequences of T tokens, and for each token the one that follows it.
struct TokenBatch {
  torch::Tensor inputs;   // (B, T) int64
  torch::Tensor targets;  // (B, T) int64; targets[b][t] is what comes after inputs[b][t]
};

/// Batches of TextGenerator's text in text_vocabulary()'s tokens. A batch depends on the sizes,
/// the seed and the step alone; each of its rows is text of its own, from anywhere in a sentence.
class TextSampler {
 public:
  /// Throws InvalidArgument for sizes below 1.
  TextSampler(std::int64_t rows, std::int64_t length, std::uint64_t seed);

  TokenBatch batch(std::int64_t step) const;
  const CharVocabulary& vocabulary() const { return vocabulary_; }

 private:
  std::int64_t rows_;
  std::int64_t length_;
  std::uint64_t seed_;
  CharVocabulary vocabulary_;
};

}  // namespace pipewright
