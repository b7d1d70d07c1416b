#include "pipewright/input/sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string_view>

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

constexpr int kMostInSums = 9;  // of each summand

std::string_view number(int value) { return kNumbers.at(static_cast<std::size_t>(value)); }

/// Draws what sentences are made of.
class Choice {
 public:
  explicit Choice(Draw* draw) : draw_(draw) {}

  /// A number from 0 to n - 1.
  int below(std::size_t n) { return static_cast<int>(draw_->below(n)); }

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
  Draw* draw_;
};

std::string article(std::string_view words) {
  const bool vowel = std::string_view("aeiou").find(words.front()) != std::string_view::npos;
  return vowel || words.starts_with("honest") ? "an" : "a";
}

/// A noun, perhaps with an adjective, and what goes before it: the, a or an, a number. One draw a
/// statement, here and below: C++ leaves the order of a call's arguments to the compiler.
std::string noun_phrase(Choice& draw, std::span<const Word> nouns,
                        std::span<const std::string_view> adjectives, bool many) {
  const Word noun = draw.from(nouns);
  std::string words(many ? noun.many : noun.one);
  if (draw.chance(50)) words = fmt::format("{} {}", draw.from(adjectives), words);
  if (draw.chance(40)) return "the " + words;
  if (many) return fmt::format("{} {}", number(draw.between(2, 9)), words);
  return fmt::format("{} {}", article(words), words);
}

std::string action(Choice& draw) {
  const bool many = draw.chance(50);
  const std::string who = noun_phrase(draw, kPeople, kAdjectives, many);
  const Word verb = draw.from(kVerbs);
  const bool many_things = draw.chance(50);
  const std::string what = noun_phrase(draw, kThings, kColours, many_things);
  return fmt::format("{} {} {}", who, many ? verb.many : verb.one, what);
}

std::string counting(Choice& draw) {
  const int first = draw.between(0, 15);
  std::string text = fmt::format("count from {}: {}", number(first), number(first));
  const int last = first + draw.between(2, 5);
  for (int i = first + 1; i <= last; ++i) text += fmt::format(", {}", number(i));
  return text;
}

std::string sum(Choice& draw) {
  const int a = draw.between(0, kMostInSums);
  const int b = draw.between(0, kMostInSums);
  return fmt::format("{} plus {} is {}", number(a), number(b), number(a + b));
}

std::string comparison(Choice& draw) {
  const int a = draw.between(0, 20);
  const int b = draw.between(0, 20);
  const std::string_view words = a > b ? "more than" : a < b ? "less than" : "the same as";
  return fmt::format("{} is {} {}", number(a), words, number(b));
}

std::string clause(Choice& draw) {
  const int kind = draw.below(10);
  if (kind < 5) return action(draw);
  if (kind < 7) return counting(draw);
  if (kind < 9) return sum(draw);
  return comparison(draw);
}

}  // namespace

std::string TextGenerator::sentence() {
  Choice draw(&draw_);
  std::string text = clause(draw);
  text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text + ".\n";
}

std::vector<std::string> sentence_words() {
  std::set<std::string> words = {"a",  "an", "the",  "count", "from", "plus",
                                 "is", "as", "more", "less",  "than", "same"};
  words.insert(kNumbers.begin(), kNumbers.end());
  words.insert(kAdjectives.begin(), kAdjectives.end());
  words.insert(kColours.begin(), kColours.end());
  const auto insert = [&](std::span<const Word> list) {
    for (const Word& word : list) words.insert({std::string(word.one), std::string(word.many)});
  };
  insert(kPeople);
  insert(kThings);
  insert(kVerbs);
  return {words.begin(), words.end()};
}

std::string sentence_vocabulary() {
  std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n.\n,\n:\n";
  const std::vector<std::string> words = sentence_words();
  const auto add = [&](char character) {
    const std::string piece(1, character);
    if (!std::binary_search(words.begin(), words.end(), piece)) text += piece + "\n";
    text += "##" + piece + "\n";
  };
  for (char digit = '0'; digit <= '9'; ++digit) add(digit);
  for (char letter = 'a'; letter <= 'z'; ++letter) add(letter);
  for (const std::string& word : words) text += word + "\n";
  return text;
}

Tokens sentence_tokens(const Tokenizer& tokenizer, std::int64_t count, std::uint64_t seed) {
  TextGenerator generator(seed);
  Tokens tokens;
  while (static_cast<std::int64_t>(tokens.size()) + 1 < count) {
    const Tokens more = tokenizer.encode(generator.sentence());
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  tokens.push_back(tokenizer.end());
  return tokens;
}

}  // namespace pipewright
