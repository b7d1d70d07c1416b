#include "pipewright/input/generated_pairs.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <span>
#include <string_view>

#include "pipewright/base/error.h"
#include "pipewright/input/draw.h"

namespace pipewright {
namespace {

/// A word for one and for many, and the stem of its translation.
struct Entry {
  std::string_view one;
  std::string_view many;
  std::string_view stem;
};

constexpr std::array<Entry, 6> kPeople = {{{"farmer", "farmers", "agro"},
                                           {"sailor", "sailors", "maris"},
                                           {"baker", "bakers", "pano"},
                                           {"teacher", "teachers", "magu"},
                                           {"child", "children", "kido"},
                                           {"woman", "women", "fema"}}};
constexpr std::array<Entry, 6> kThings = {{{"boat", "boats", "barka"},
                                           {"knife", "knives", "kuto"},
                                           {"box", "boxes", "skato"},
                                           {"house", "houses", "domo"},
                                           {"table", "tables", "mensa"},
                                           {"horse", "horses", "cavo"}}};
constexpr std::array<Entry, 5> kVerbs = {{{"sees", "see", "vid"},
                                          {"buys", "buy", "akir"},
                                          {"paints", "paint", "farb"},
                                          {"has", "have", "ten"},
                                          {"finds", "find", "trov"}}};
constexpr std::array<Entry, 6> kAdjectives = {{{"old", "old", "vek"},
                                               {"red", "red", "ruj"},
                                               {"small", "small", "pik"},
                                               {"new", "new", "nov"},
                                               {"blue", "blue", "blu"},
                                               {"happy", "happy", "joi"}}};
constexpr std::array<Entry, 4> kNumbers = {
    {{"", "two", "du"}, {"", "three", "tri"}, {"", "four", "kvar"}, {"", "five", "kin"}}};

const Entry& draw_from(std::span<const Entry> list, Draw* draw) {
  return list[draw->below(list.size())];
}

/// Every word of both languages.
std::set<std::string> pair_words() {
  std::set<std::string> words = {"the", "a", "an", "la", "un"};
  const auto add = [&](std::span<const Entry> list, std::initializer_list<const char*> endings) {
    for (const Entry& entry : list) {
      for (const std::string_view word : {entry.one, entry.many})
        if (!word.empty()) words.emplace(word);
      for (const char* ending : endings) words.insert(std::string(entry.stem) + ending);
    }
  };
  for (const std::span<const Entry> list :
       {std::span<const Entry>(kPeople), std::span<const Entry>(kThings),
        std::span<const Entry>(kAdjectives)}) {
    add(list, {"", "n"});
  }
  add(kVerbs, {"ar", "aren"});
  add(kNumbers, {""});
  return words;
}

std::string_view source_of(const Entry& entry, bool many) { return many ? entry.many : entry.one; }

/// `the old boats` and `la barkan vekn`. One draw a statement: C++ leaves the order of a call's
/// arguments to the compiler.
SentencePair noun_phrase(std::span<const Entry> nouns, bool many, Draw* draw) {
  const Entry& noun = draw_from(nouns, draw);
  const std::string_view ending = many ? "n" : "";
  SentencePair phrase = {std::string(source_of(noun, many)),
                         fmt::format("{}{}", noun.stem, ending)};
  if (draw->chance(0.5)) {
    const Entry& adjective = draw_from(kAdjectives, draw);
    phrase.source = fmt::format("{} {}", source_of(adjective, many), phrase.source);
    phrase.target += fmt::format(" {}{}", adjective.stem, ending);
  }
  const bool definite = draw->chance(0.4);
  const Entry& number = draw_from(kNumbers, draw);
  const bool vowel = phrase.source.starts_with('o');
  const std::string_view counted = many ? number.many : vowel ? "an" : "a";
  return {fmt::format("{} {}", definite ? "the" : counted, phrase.source),
          fmt::format("{} {}",
                      definite ? "la"
                      : many   ? number.stem
                               : "un",
                      phrase.target)};
}

}  // namespace

GeneratedPairs::GeneratedPairs(std::int64_t pairs, std::uint64_t seed)
    : pairs_(pairs), seed_(seed) {
  if (pairs < 1) throw InvalidArgument("data", fmt::format("pairs = {}; use 1 or more", pairs));
}

SentencePair GeneratedPairs::pair(std::int64_t number) const {
  Draw draw(seed_from({seed_, static_cast<std::uint64_t>(number)}));
  const bool many = draw.chance(0.5);
  const SentencePair who = noun_phrase(kPeople, many, &draw);
  const Entry& verb = draw_from(kVerbs, &draw);
  const bool many_things = draw.chance(0.5);
  const SentencePair what = noun_phrase(kThings, many_things, &draw);
  return {fmt::format("{} {} {}", who.source, source_of(verb, many), what.source),
          fmt::format("{} {} {}{}", who.target, what.target, verb.stem, many ? "aren" : "ar")};
}

std::string pair_vocabulary() {
  std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  const std::set<std::string> words = pair_words();
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    const std::string piece(1, letter);
    if (!words.contains(piece)) text += piece + "\n";
    text += "##" + piece + "\n";
  }
  for (const std::string& word : words) text += word + "\n";
  return text;
}

}  // namespace pipewright
