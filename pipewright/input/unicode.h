#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// Text as code points.
using CodePoints = std::u32string;

/// Bytes that are no UTF-8 become U+FFFD, one each.
CodePoints decode_utf8(std::string_view text);
std::string encode_utf8(std::u32string_view text);

/// The offset of the first byte that is no UTF-8.
std::optional<std::size_t> first_bad_utf8(std::string_view text);

bool is_space(char32_t point);        // blanks, tabs, ends of lines, Unicode's Zs
bool is_control(char32_t point);      // Cc and Cf that are no space
bool is_punctuation(char32_t point);  // Unicode's P*, and all of ASCII that is no letter or digit
bool is_ideograph(char32_t point);    // Chinese characters, not Hangul, Hiragana or Katakana

/// Lower case, character by character, without accents: NFD, and its Mn left out.
CodePoints fold(std::u32string_view word);

}  // namespace pipewright
