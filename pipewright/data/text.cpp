#include "pipewright/data/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/input/draw.h"
#include "pipewright/nn/random.h"

namespace pipewright {
namespace {

constexpr std::size_t kMostSkipped = 64;  // characters before a row: about two sentences

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
    Draw draw(stream_seed({.run_seed = seed_, .step = step, .micro_batch = row}));
    const auto skipped = static_cast<std::size_t>(draw.below(kMostSkipped));
    const auto wanted = static_cast<std::size_t>(length_) + 1;
    TextGenerator generator(draw);
    std::string text;
    while (text.size() < skipped + wanted) text += generator.sentence();
    const auto row_tokens = vocabulary_.encode(std::string_view(text).substr(skipped, wanted));
    std::copy(row_tokens.begin(), row_tokens.end(), tokens[row].data_ptr<std::int64_t>());
  }
  return {tokens.slice(1, 0, length_).contiguous(), tokens.slice(1, 1).contiguous()};
}

}  // namespace pipewright
