#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pipewright/input/array.h"
#include "pipewright/input/file.h"
#include "pipewright/input/tokenizer.h"

namespace pipewright {

/// One long row of tokens. Calls may come from several threads at once.
class TokenStream {
 public:
  TokenStream() = default;
  TokenStream(const TokenStream&) = delete;
  TokenStream(TokenStream&&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;
  TokenStream& operator=(TokenStream&&) = delete;
  virtual ~TokenStream() = default;

  virtual std::int64_t size() const = 0;

  /// Fills `into` with the tokens from `first` on; there are as many.
  virtual void read(std::int64_t first, std::span<std::int64_t> into) const = 0;
};

/// The bytes of text files as tokens, read when they are asked for: all files of a folder in the
/// order of their names, ByteTokenizer's end() after each.
class ByteStream final : public TokenStream {
 public:
  /// `path`: a file or a folder. Throws InvalidArgument where it cannot be read.
  explicit ByteStream(const std::string& path);

  std::int64_t size() const override { return size_; }
  void read(std::int64_t first, std::span<std::int64_t> into) const override;

 private:
  std::vector<DataFile> files_;
  std::vector<std::int64_t> firsts_;  // each file's first token
  std::int64_t size_ = 0;
};

/// Ready token ids in .npy files of one dimension and whole numbers, read when they are asked for:
/// a file, or all *.npy of a folder in the order of their names.
class TokenFiles final : public TokenStream {
 public:
  /// Tokens are 0 to `vocabulary` - 1. Throws InvalidArgument naming the file that is none such.
  TokenFiles(const std::string& path, std::int64_t vocabulary);

  std::int64_t size() const override { return size_; }
  /// Throws InvalidArgument with the place of a number that is no token.
  void read(std::int64_t first, std::span<std::int64_t> into) const override;

 private:
  struct Part {
    DataFile file;
    ArrayLayout layout;
    std::int64_t first = 0;
  };
  void read_part(const Part& part, std::int64_t first, std::span<std::int64_t> into) const;

  std::int64_t vocabulary_;
  std::vector<Part> parts_;
  std::int64_t size_ = 0;
};

/// Tokens in memory.
class MemoryStream final : public TokenStream {
 public:
  explicit MemoryStream(Tokens tokens) : tokens_(std::move(tokens)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void read(std::int64_t first, std::span<std::int64_t> into) const override;

 private:
  Tokens tokens_;
};

/// The tokens of a text file or of a folder of them, line by line, end() after each file: 4 bytes
/// each in memory.
Tokens tokenize_files(const std::string& path, const Tokenizer& tokenizer);

/// The same, into a .npy file for TokenFiles: for text that is larger than memory, or used often.
/// Returns the number of tokens.
std::int64_t tokenize_files(const std::string& path, const Tokenizer& tokenizer,
                            const std::string& npy);

}  // namespace pipewright
