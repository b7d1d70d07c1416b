#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipewright/input/draw.h"
#include "pipewright/input/tokenizer.h"

namespace pipewright {

/// Endless made text, a sentence a line, the same for the same seed on every machine. There is
/// something to learn at every distance: spelling, the agreement of verbs with their nouns and of
/// nouns with their numbers, counting, sums.
///
///     The old sailor paints nine small boats.
///     Count from six: six, seven, eight, nine.
///     Four plus five is nine.
class TextGenerator {
 public:
  explicit TextGenerator(std::uint64_t seed) : draw_(seed) {}
  explicit TextGenerator(const Draw& draw) : draw_(draw) {}

  /// The next sentence, with the end of its line.
  std::string sentence();

 private:
  Draw draw_;
};

/// Every word that TextGenerator uses, in lower case, sorted.
std::vector<std::string> sentence_words();

/// The text of a vocab.txt that has those words whole, BERT's five special tokens, and all letters
/// and digits as pieces, so that no word of them is unknown.
std::string sentence_vocabulary();

/// At least `count` tokens of made text, an end() after the last sentence.
Tokens sentence_tokens(const Tokenizer& tokenizer, std::int64_t count, std::uint64_t seed);

}  // namespace pipewright
