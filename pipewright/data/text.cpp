#include "pipewright/data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "pipewright/base/error.h"
#include "pipewright/nn/random.h"

namespace pipewright {
namespace {

constexpr std::array<std::string_view, 21> kNumbers = {
    "zero",     "one",     "two",     "three",     "four",     "five",     "six",
    "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",   "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"};

/// One of a thing, and more of it.
struct Word {
  std::string_view one;
  std::string_view many;
};

constexpr std::array<Word, 12> kPeople = {{{"farmer", "farmers"},
                                           {"sailor", "sailors"},
                                           {"teacher", "teachers"},
                                           {"baker", "bakers"},
                                           {"woman", "women"},
                                           {"man", "men"},
                                           {"child", "children"},
                                           {"uncle", "uncles"},
                                           {"doctor", "doctors"},
                                           {"girl", "girls"},
                                           {"boy", "boys"},
                                           {"engineer", "engineers"}}};
constexpr std::array<Word, 10> kThings = {{{"boat", "boats"},
                                           {"horse", "horses"},
                                           {"apple", "apples"},
                                           {"house", "houses"},
                                           {"knife", "knives"},
                                           {"bridge", "bridges"},
                                           {"umbrella", "umbrellas"},
                                           {"dog", "dogs"},
                                           {"letter", "letters"},
                                           {"box", "boxes"}}};
/// What one does, and what many do.
constexpr std::array<Word, 8> kVerbs = {{{"sees", "see"},
                                         {"paints", "paint"},
                                         {"finds", "find"},
                                         {"buys", "buy"},
                                         {"washes", "wash"},
                                         {"carries", "carry"},
                                         {"has", "have"},
                                         {"likes", "like"}}};
constexpr std::array<std::string_view, 8> kAdjectives = {"old",   "young",  "small", "tall",
                                                         "happy", "honest", "quiet", "angry"};
constexpr std::array<std::string_view, 8> kColours = {"red",  "green", "blue", "orange",
                                                      "grey", "white", "old",  "new"};

constexpr std::size_t kMostSkipped = 64;  // characters before a row: about two sentences
constexpr int kMostInSums = 9;            // of each summand

std::string_view number(int value) { return kNumbers.at(static_cast<std::size_t>(value)); }

/// Draws from a state that it moves on (SplitMix64): the standard library's distributions differ
/// between machines.
class Draw {
 public:
  explicit Draw(std::uint64_t* state) : state_(state) {}

  /// A number from 0 to n - 1.
  int below(std::size_t n) {
    *state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = *state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<int>((z ^ (z >> 31)) % n);
  }

  /// A number from `least` to `most`.
  int between(int least, int most) {
    return least + below(static_cast<std::size_t>(most - least + 1));
  }

  bool chance(int percent) { return below(100) < percent; }

  template <typename List>
  typename List::value_type from(const List& list) {
    return list[static_cast<std::size_t>(below(list.size()))];
  }

 private:
  std::uint64_t* state_;
};

std::string article(std::string_view words) {
  const bool vowel = std::string_view("aeiou").find(words.front()) != std::string_view::npos;
  return vowel || words.starts_with("honest") ? "an" : "a";
}

/// A noun, perhaps with an adjective, and what goes before it: the, a or an, a number. One draw a
/// statement, here and below: C++ leaves the order of a call's arguments to the compiler.
std::string noun_phrase(Draw& draw, std::span<const Word> nouns,
                        std::span<const std::string_view> adjectives, bool many) {
  const Word noun = draw.from(nouns);
  std::string words(many ? noun.many : noun.one);
  if (draw.chance(50)) words = fmt::format("{} {}", draw.from(adjectives), words);
  if (draw.chance(40)) return "the " + words;
  if (many) return fmt::format("{} {}", number(draw.between(2, 9)), words);
  return fmt::format("{} {}", article(words), words);
}

std::string action(Draw& draw) {
  const bool many = draw.chance(50);
  const std::string who = noun_phrase(draw, kPeople, kAdjectives, many);
  const Word verb = draw.from(kVerbs);
  const bool many_things = draw.chance(50);
  const std::string what = noun_phrase(draw, kThings, kColours, many_things);
  return fmt::format("{} {} {}", who, many ? verb.many : verb.one, what);
}

std::string counting(Draw& draw) {
  const int first = draw.between(0, 15);
  std::string text = fmt::format("count from {}: {}", number(first), number(first));
  const int last = first + draw.between(2, 5);
  for (int i = first + 1; i <= last; ++i) text += fmt::format(", {}", number(i));
  return text;
}

std::string sum(Draw& draw) {
  const int a = draw.between(0, kMostInSums);
  const int b = draw.between(0, kMostInSums);
  return fmt::format("{} plus {} is {}", number(a), number(b), number(a + b));
}

std::string comparison(Draw& draw) {
  const int a = draw.between(0, 20);
  const int b = draw.between(0, 20);
  const std::string_view words = a > b ? "more than" : a < b ? "less than" : "the same as";
  return fmt::format("{} is {} {}", number(a), words, number(b));
}

std::string clause(Draw& draw) {
  const int kind = draw.below(10);
  if (kind < 5) return action(draw);
  if (kind < 7) return counting(draw);
  if (kind < 9) return sum(draw);
  return comparison(draw);
}

}  // namespace

CharVocabulary::CharVocabulary(std::string_view characters)
    : characters_(characters), token_of_(256, -1) {
  if (characters.empty()) throw InvalidArgument("vocabulary", "it has no characters");
  for (std::size_t i = 0; i < characters.size(); ++i) {
    std::int64_t& token = token_of_[static_cast<unsigned char>(characters[i])];
    if (token >= 0) {
      throw InvalidArgument("vocabulary", fmt::format("character {:?} stands there twice, at {} "
                                                      "and at {}",
                                                      characters[i], token, i));
    }
    token = static_cast<std::int64_t>(i);
  }
}

std::vector<std::int64_t> CharVocabulary::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  tokens.reserve(text.size());
  for (const char character : text) {
    tokens.push_back(token_of_[static_cast<unsigned char>(character)]);
    if (tokens.back() >= 0) continue;
    throw InvalidArgument("vocabulary", fmt::format("character {:?}, at {} of the text, is none of "
                                                    "its {}",
                                                    character, tokens.size() - 1, size()));
  }
  return tokens;
}

std::string CharVocabulary::decode(const std::vector<std::int64_t>& tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= size()) {
      throw InvalidArgument("vocabulary",
                            fmt::format("token {} is none of 0 to {}", token, size() - 1));
    }
    text += characters_[static_cast<std::size_t>(token)];
  }
  return text;
}

std::string TextGenerator::sentence() {
  Draw draw(&state_);
  std::string text = clause(draw);
  text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text + ".\n";
}

CharVocabulary text_vocabulary() {
  return CharVocabulary("\n ,.:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
}

TextSampler::TextSampler(std::int64_t rows, std::int64_t length, std::uint64_t seed)
    : rows_(rows), length_(length), seed_(seed), vocabulary_(text_vocabulary()) {
  if (rows < 1) throw InvalidArgument("text", fmt::format("rows = {}; use 1 or more", rows));
  if (length < 1) throw InvalidArgument("text", fmt::format("length = {}; use 1 or more", length));
}

TokenBatch TextSampler::batch(std::int64_t step) const {
  const auto tokens = torch::empty({rows_, length_ + 1}, torch::kInt64);
  for (std::int64_t row = 0; row < rows_; ++row) {
    std::uint64_t state = stream_seed({.run_seed = seed_, .step = step, .micro_batch = row});
    const auto skipped = static_cast<std::size_t>(Draw(&state).below(kMostSkipped));
    const auto wanted = static_cast<std::size_t>(length_) + 1;
    TextGenerator generator(state);
    std::string text;
    while (text.size() < skipped + wanted) text += generator.sentence();
    const auto row_tokens = vocabulary_.encode(std::string_view(text).substr(skipped, wanted));
    std::copy(row_tokens.begin(), row_tokens.end(), tokens[row].data_ptr<std::int64_t>());
  }
  return {tokens.slice(1, 0, length_).contiguous(), tokens.slice(1, 1).contiguous()};
}

}  // namespace pipewright
