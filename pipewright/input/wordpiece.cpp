#include "pipewright/input/wordpiece.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"

namespace pipewright {
namespace {

constexpr std::string_view kContinued = "##";

[[noreturn]] void refuse_line(const std::string& path, std::size_t line, std::string_view why) {
  throw InvalidArgument("vocabulary", fmt::format("'{}' line {}: {}", path, line, why));
}

void end_word(CodePoints* word, std::vector<CodePoints>* words) {
  if (!word->empty()) words->push_back(std::exchange(*word, {}));
}

/// The byte where each character of the word ends, from the first one on.
std::vector<std::size_t> character_ends(std::string_view word) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i <= word.size(); ++i) {
    const bool starts = i == word.size() || (static_cast<unsigned char>(word[i]) & 0xc0) != 0x80;
    if (starts) ends.push_back(i);
  }
  return ends;
}

}  // namespace

WordPiece::WordPiece(std::string_view vocabulary, const std::string& path,
                     const WordPieceOptions& options)
    : options_(options) {
  if (options.most_characters < 1) {
    throw InvalidArgument("vocabulary", fmt::format("words of at most {} characters; use 1 or more",
                                                    options.most_characters));
  }
  while (!vocabulary.empty()) {
    const std::size_t end = std::min(vocabulary.find('\n'), vocabulary.size());
    std::string_view line = vocabulary.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    add_line(line, path);
    vocabulary.remove_prefix(std::min(end + 1, vocabulary.size()));
  }
  find_specials(path);
}

WordPiece WordPiece::load(const std::string& path, const WordPieceOptions& options) {
  return {read_file(path, "vocabulary"), path, options};
}

void WordPiece::add_line(std::string_view line, const std::string& path) {
  const std::size_t number = pieces_.size() + 1;
  if (line.empty()) refuse_line(path, number, "it is empty; a line is a piece of a word");
  if (const auto at = first_bad_utf8(line)) {
    refuse_line(path, number, fmt::format("no UTF-8 at its byte {}", *at));
  }
  if (number > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    refuse_line(path, number, "more pieces than there are tokens");
  }
  const bool later = line.starts_with(kContinued) && line.size() > kContinued.size();
  const std::string_view piece = later ? line.substr(kContinued.size()) : line;
  auto& places = later ? later_pieces_ : first_pieces_;
  const auto [found, added] =
      places.emplace(std::string(piece), static_cast<std::int32_t>(number - 1));
  if (!added) {
    refuse_line(path, number,
                fmt::format("{:?} stands in line {} already", line, found->second + 1));
  }
  longest_ = std::max(longest_, piece.size());
  pieces_.emplace_back(line);
}

void WordPiece::find_specials(const std::string& path) {
  const std::vector<std::pair<std::string, std::int32_t*>> specials = {{"[PAD]", &pad_},
                                                                       {"[UNK]", &unknown_},
                                                                       {"[CLS]", &begin_},
                                                                       {"[SEP]", &end_},
                                                                       {"[MASK]", &mask_}};
  std::string missing;
  for (const auto& [name, token] : specials) {
    const auto found = first_pieces_.find(name);
    if (found == first_pieces_.end()) {
      missing += " " + name;
    } else {
      *token = found->second;
    }
  }
  if (!missing.empty()) {
    throw InvalidArgument("vocabulary", fmt::format("'{}' with its {} lines has no line{}; add it",
                                                    path, size(), missing));
  }
}

bool WordPiece::is_special(std::int32_t token) const {
  return token == pad_ || token == unknown_ || token == begin_ || token == end_ || token == mask_;
}

std::vector<CodePoints> WordPiece::words(std::string_view text) const {
  std::vector<CodePoints> words;
  CodePoints word;
  const auto add = [&](char32_t point) {
    const bool alone = is_punctuation(point) || is_ideograph(point);
    if (alone) end_word(&word, &words);
    word += point;
    if (alone) end_word(&word, &words);
  };
  for (const char32_t point : decode_utf8(text)) {
    if (point == 0 || point == 0xfffd || is_control(point)) continue;
    if (is_space(point)) {
      end_word(&word, &words);
    } else if (options_.lower_case) {
      for (const char32_t folded : fold({&point, 1})) add(folded);
    } else {
      add(point);
    }
  }
  end_word(&word, &words);
  return words;
}

/// The longest piece that begins the rest of the word, again and again.
void WordPiece::cut(const CodePoints& word, Tokens* tokens) const {
  if (static_cast<std::int64_t>(word.size()) > options_.most_characters) {
    tokens->push_back(unknown_);
    return;
  }
  const std::string text = encode_utf8(word);
  const std::vector<std::size_t> ends = character_ends(text);
  const std::size_t before = tokens->size();
  std::size_t start = 0;
  while (start < text.size()) {
    const auto& pieces = start == 0 ? first_pieces_ : later_pieces_;
    auto end = std::upper_bound(ends.begin(), ends.end(), start + longest_);
    auto found = pieces.end();
    while (found == pieces.end() && end != ends.begin() && *(end - 1) > start) {
      --end;
      found = pieces.find(text.substr(start, *end - start));
    }
    if (found == pieces.end()) {
      tokens->resize(before);
      tokens->push_back(unknown_);
      return;
    }
    tokens->push_back(found->second);
    start = *end;
  }
}

Tokens WordPiece::encode(std::string_view text) const {
  Tokens tokens;
  for (const CodePoints& word : words(text)) cut(word, &tokens);
  return tokens;
}

std::string WordPiece::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= size()) {
      throw InvalidArgument("vocabulary",
                            fmt::format("token {} is none of 0 to {}", token, size() - 1));
    }
    const std::string& piece = pieces_[static_cast<std::size_t>(token)];
    const bool later = piece.starts_with(kContinued) && piece.size() > kContinued.size();
    if (!later && !text.empty()) text += ' ';
    text += later ? piece.substr(kContinued.size()) : piece;
  }
  return text;
}

}  // namespace pipewright
