#include "pipewright/input/tokenizer.h"

#include <fmt/format.h>

#include <array>

#include "pipewright/base/error.h"

namespace pipewright {

Tokens ByteTokenizer::encode(std::string_view text) const {
  Tokens tokens;
  tokens.reserve(text.size());
  for (const char character : text) tokens.push_back(static_cast<unsigned char>(character));
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> tokens) const {
  constexpr std::array<std::string_view, 4> kNames = {"<pad>", "<begin>", "<end>", "<mask>"};
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= size()) {
      throw InvalidArgument("data", fmt::format("token {} is none of 0 to {}", token, size() - 1));
    }
    if (is_special(token)) {
      text += kNames.at(static_cast<std::size_t>(token) - 256);
    } else {
      text += static_cast<char>(token);
    }
  }
  return text;
}

}  // namespace pipewright
