#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

using Tokens = std::vector<std::int32_t>;

/// Text as numbers. Calls may come from several threads at once.
class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = default;
  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;
  virtual ~Tokenizer() = default;

  virtual std::int64_t size() const = 0;  // tokens are 0 to size() - 1

  /// The text alone, without begin() and end().
  virtual Tokens encode(std::string_view text) const = 0;

  /// For people: what a sequence of tokens says. Throws InvalidArgument for one that is none.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;

  // Tokens that no text has.
  virtual std::int32_t pad() const = 0;
  virtual std::int32_t begin() const = 0;
  virtual std::int32_t end() const = 0;
  virtual std::int32_t mask() const = 0;
  virtual bool is_special(std::int32_t token) const = 0;
};

/// Bytes as tokens: 0 to 255, and four more. For any text in any language, without a vocabulary.
class ByteTokenizer final : public Tokenizer {
 public:
  std::int64_t size() const override { return 260; }
  Tokens encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int32_t pad() const override { return 256; }
  std::int32_t begin() const override { return 257; }
  std::int32_t end() const override { return 258; }
  std::int32_t mask() const override { return 259; }
  bool is_special(std::int32_t token) const override { return token > 255; }
};

}  // namespace pipewright
