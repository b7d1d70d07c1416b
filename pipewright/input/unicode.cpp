#include "pipewright/input/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace pipewright {
namespace {

constexpr char32_t kReplacement = 0xfffd;

struct Range {
  char32_t first;
  char32_t last;
};

/// The blocks of CJK Unified Ideographs and of their compatibility forms, as BERT has them.
constexpr std::array<Range, 8> kIdeographs = {{{0x4e00, 0x9fff},
                                               {0x3400, 0x4dbf},
                                               {0x20000, 0x2a6df},
                                               {0x2a700, 0x2b73f},
                                               {0x2b740, 0x2b81f},
                                               {0x2b820, 0x2ceaf},
                                               {0xf900, 0xfaff},
                                               {0x2f800, 0x2fa1f}}};

utf8proc_category_t category(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

/// The code point at the start of the text and its bytes; 0 bytes where there is none.
utf8proc_ssize_t next_point(std::string_view text, utf8proc_int32_t* point) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  return utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), point);
}

/// Canonically decomposed.
CodePoints decompose(char32_t point) {
  std::array<utf8proc_int32_t, 32> parts{};
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), parts.data(),
                                             static_cast<utf8proc_ssize_t>(parts.size()),
                                             UTF8PROC_DECOMPOSE, &boundary);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) return {point};
  return {parts.begin(), parts.begin() + count};
}

}  // namespace

CodePoints decode_utf8(std::string_view text) {
  CodePoints points;
  points.reserve(text.size());
  while (!text.empty()) {
    utf8proc_int32_t point = 0;
    const auto bytes = next_point(text, &point);
    points += bytes > 0 ? static_cast<char32_t>(point) : kReplacement;
    text.remove_prefix(bytes > 0 ? static_cast<std::size_t>(bytes) : 1);
  }
  return points;
}

std::string encode_utf8(std::u32string_view text) {
  std::string bytes;
  for (const char32_t point : text) {
    std::array<utf8proc_uint8_t, 4> buffer{};
    const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), buffer.data());
    bytes.append(buffer.begin(), buffer.begin() + count);
  }
  return bytes;
}

std::optional<std::size_t> first_bad_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    utf8proc_int32_t point = 0;
    const auto bytes = next_point(text.substr(at), &point);
    if (bytes <= 0) return at;
    at += static_cast<std::size_t>(bytes);
  }
  return {};
}

bool is_space(char32_t point) {
  if (point < 0x80) return point == ' ' || point == '\t' || point == '\n' || point == '\r';
  return category(point) == UTF8PROC_CATEGORY_ZS;
}

bool is_control(char32_t point) {
  if (is_space(point)) return false;
  const auto kind = category(point);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF;
}

bool is_punctuation(char32_t point) {
  if (point < 0x80) {
    return (point >= 33 && point <= 47) || (point >= 58 && point <= 64) ||
           (point >= 91 && point <= 96) || (point >= 123 && point <= 126);
  }
  const auto kind = category(point);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_ideograph(char32_t point) {
  return std::any_of(kIdeographs.begin(), kIdeographs.end(), [point](const Range& range) {
    return point >= range.first && point <= range.last;
  });
}

CodePoints fold(std::u32string_view word) {
  CodePoints folded;
  folded.reserve(word.size());
  for (const char32_t point : word) {
    const auto lower =
        static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
    if (lower < 0x80) {
      folded += lower;
      continue;
    }
    for (const char32_t part : decompose(lower)) {
      if (category(part) != UTF8PROC_CATEGORY_MN) folded += part;
    }
  }
  return folded;
}

}  // namespace pipewright
