// Fuzzes vocabularies and texts: the lines up to one of `===` are a vocab.txt, the rest is cut into
// its pieces. These are tokens of the vocabulary and, where no word is unknown, say what the text
// says.
#include "pipewright/input/wordpiece.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pipewright/base/error.h"
#include "tests/fuzz/properties.h"

namespace pipewright {
namespace {

void check_text(const WordPiece& vocabulary, std::string_view text) {
  const Tokens tokens = vocabulary.encode(text);
  bool unknown = false;
  for (const std::int32_t token : tokens) {
    fuzz::require(token >= 0 && token < vocabulary.size(), "a token that is none");
    fuzz::require(token == vocabulary.unknown() || !vocabulary.is_special(token),
                  "a special token in a text");
    unknown = unknown || token == vocabulary.unknown();
  }
  std::string words;
  for (const CodePoints& word : vocabulary.words(text)) {
    fuzz::require(!word.empty(), "an empty word");
    words += (words.empty() ? "" : " ") + encode_utf8(word);
  }
  if (!unknown) fuzz::require(vocabulary.decode(tokens) == words, "pieces that are another text");
}

void check(std::string_view vocabulary, std::string_view text, bool lower_case) {
  std::optional<WordPiece> pieces;
  try {
    pieces.emplace(vocabulary, "fuzz", WordPieceOptions{.lower_case = lower_case});
  } catch (const InvalidArgument&) {
    return;
  }
  check_text(*pieces, text);
}

}  // namespace
}  // namespace pipewright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using pipewright::check;
  constexpr std::string_view kBetween = "===\n";
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(all.find(kBetween), all.size());
  const std::string_view text = all.substr(std::min(end + kBetween.size(), all.size()));
  check(all.substr(0, end), text, true);
  check(all.substr(0, end), text, false);
  // Most changes of a vocabulary break it. So that texts get further: with one that is whole.
  check("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##a\nab\n##b\ne\n\xc3\xa9\n##\xc3\xa9\n.\n", all,
        true);
  return 0;
}
