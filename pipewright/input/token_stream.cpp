#include "pipewright/input/token_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "pipewright/base/error.h"
#include "pipewright/input/lines.h"
#include "pipewright/input/npy.h"

namespace pipewright {
namespace {

void check_range(const TokenStream& stream, std::int64_t first, std::size_t count) {
  internal_check(first >= 0 && first + static_cast<std::int64_t>(count) <= stream.size(),
                 "tokens that the stream does not have");
}

struct WholeNumber {
  bool known = false;
  bool is_signed = false;
};

WholeNumber whole_number(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64: return {true, false};
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64: return {true, true};
    default: return {};
  }
}

/// A whole number of up to 8 bytes. An unsigned one of 2^63 or more comes out negative, and so is
/// no token either way.
std::int64_t number_from(std::span<const std::byte> bytes, const ArrayLayout& layout) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t at = layout.big_endian ? i : bytes.size() - 1 - i;
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[at]);
  }
  if (!whole_number(layout.dtype).is_signed) return static_cast<std::int64_t>(value);
  const std::size_t unused = 64 - 8 * bytes.size();  // the sign goes up there
  return static_cast<std::int64_t>(value << unused) >> unused;
}

using TakeTokens = std::function<void(std::span<const std::int32_t>)>;

void tokenize_each(const std::string& path, const Tokenizer& tokenizer, const TakeTokens& take) {
  for (const std::string& file : data_files(path)) {
    const LineFile lines(file, [&](std::int64_t, std::string_view line) {
      take(tokenizer.encode(std::string(line) + '\n'));
    });
    take(Tokens{tokenizer.end()});
  }
}

}  // namespace

ByteStream::ByteStream(const std::string& path) {
  for (const std::string& name : data_files(path)) {
    firsts_.push_back(size_);
    files_.emplace_back(name);
    size_ += files_.back().size() + 1;
  }
}

void ByteStream::read(std::int64_t first, std::span<std::int64_t> into) const {
  check_range(*this, first, into.size());
  auto file = static_cast<std::size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), first) -
                                       firsts_.begin() - 1);
  std::int64_t at = first - firsts_[file];
  while (!into.empty()) {
    const auto wanted = static_cast<std::int64_t>(into.size());
    const std::string bytes = files_[file].read_some(at, wanted);
    std::transform(bytes.begin(), bytes.end(), into.begin(),
                   [](char byte) { return static_cast<unsigned char>(byte); });
    into = into.subspan(bytes.size());
    if (into.empty()) return;
    into[0] = ByteTokenizer().end();
    into = into.subspan(1);
    ++file;
    at = 0;
  }
}

TokenFiles::TokenFiles(const std::string& path, std::int64_t vocabulary) : vocabulary_(vocabulary) {
  for (const std::string& name : data_files(path, ".npy")) {
    DataFile file(name);
    ArrayLayout layout =
        parse_npy_header(file.read_some(0, kMostNpyHeaderBytes), file.size(), name);
    if (layout.shape.size() != 1 || !whole_number(layout.dtype).known) {
      throw InvalidArgument("data",
                            fmt::format("'{}' is an array of {} with {} dimensions; tokens "
                                        "are whole numbers in one",
                                        name, dtype_name(layout.dtype), layout.shape.size()));
    }
    const std::int64_t count = layout.shape.front();
    parts_.push_back({std::move(file), std::move(layout), size_});
    size_ += count;
  }
}

void TokenFiles::read(std::int64_t first, std::span<std::int64_t> into) const {
  check_range(*this, first, into.size());
  for (const Part& part : parts_) {
    const std::int64_t end = part.first + part.layout.shape.front();
    if (into.empty() || first >= end) continue;
    const auto count =
        static_cast<std::size_t>(std::min(end - first, static_cast<std::int64_t>(into.size())));
    read_part(part, first - part.first, into.first(count));
    into = into.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

void TokenFiles::read_part(const Part& part, std::int64_t first,
                           std::span<std::int64_t> into) const {
  const auto element = static_cast<std::size_t>(dtype_bytes(part.layout.dtype));
  std::vector<std::byte> bytes(into.size() * element);
  const std::int64_t offset = part.layout.data_start + first * static_cast<std::int64_t>(element);
  part.file.read(offset, bytes);
  for (std::size_t i = 0; i < into.size(); ++i) {
    into[i] = number_from(std::span(bytes).subspan(i * element, element), part.layout);
    if (into[i] >= 0 && into[i] < vocabulary_) continue;
    refuse_data(part.file.path(), offset + static_cast<std::int64_t>(i * element),
                fmt::format("token {}; the vocabulary has {}", into[i], vocabulary_));
  }
}

void MemoryStream::read(std::int64_t first, std::span<std::int64_t> into) const {
  check_range(*this, first, into.size());
  std::copy_n(tokens_.begin() + first, into.size(), into.begin());
}

Tokens tokenize_files(const std::string& path, const Tokenizer& tokenizer) {
  Tokens tokens;
  tokenize_each(path, tokenizer, [&](std::span<const std::int32_t> more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  });
  return tokens;
}

std::int64_t tokenize_files(const std::string& path, const Tokenizer& tokenizer,
                            const std::string& npy) {
  NpyWriter writer(npy);
  std::int64_t count = 0;
  Tokens waiting;
  const auto write = [&] {
    writer.append(waiting);
    count += static_cast<std::int64_t>(waiting.size());
    waiting.clear();
  };
  tokenize_each(path, tokenizer, [&](std::span<const std::int32_t> more) {
    waiting.insert(waiting.end(), more.begin(), more.end());
    if (waiting.size() >= (std::size_t{1} << 18)) write();
  });
  write();
  writer.finish();
  return count;
}

}  // namespace pipewright
