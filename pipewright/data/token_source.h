#pragma once

#include <cstdint>
#include <memory>

#include "pipewright/data/source.h"
#include "pipewright/input/masking.h"
#include "pipewright/input/token_stream.h"
#include "pipewright/input/tokenizer.h"

namespace pipewright {

/// What no loss counts: cross_entropy()'s default for targets to leave out.
inline constexpr std::int64_t kIgnoredTarget = -100;

/// Pieces of a stream for a language model: inputs[0] (B, T) tokens, targets[0] (B, T) the token
/// after each. The pieces follow each other; the last one begins earlier where the stream does not
/// end with it, so that all of the stream is there.
class TokenSource final : public DataSource {
 public:
  /// Throws InvalidArgument where the stream has less than `length` + 1 tokens.
  TokenSource(std::shared_ptr<const TokenStream> stream, std::int64_t length);

  std::int64_t size() const override;
  SampleBatch batch(std::span<const std::int64_t> samples, std::int64_t epoch) const override;

 private:
  std::shared_ptr<const TokenStream> stream_;
  std::int64_t length_;
};

/// Pieces of a stream for a masked language model, as BERT's, each begin() tokens end(). Which
/// tokens are hidden is drawn by (seed, epoch, sample). Every row has the same number P of them:
///
///     inputs[0]   (B, T) tokens, some hidden
///     inputs[1]   (B, P) the places to predict
///     targets[0]  (B, P) what stood there; kIgnoredTarget beyond what a row had to hide
class MaskedSource final : public DataSource {
 public:
  /// `length`: T, with begin() and end(). Throws InvalidArgument where the stream has less than
  /// `length` - 2 tokens.
  MaskedSource(std::shared_ptr<const TokenStream> stream,
               std::shared_ptr<const Tokenizer> tokenizer, std::int64_t length, std::uint64_t seed,
               const MaskOptions& options = {});

  std::int64_t size() const override;
  SampleBatch batch(std::span<const std::int64_t> samples, std::int64_t epoch) const override;
  std::int64_t predictions() const { return predictions_; }  // P

 private:
  std::shared_ptr<const TokenStream> stream_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::int64_t length_;
  std::uint64_t seed_;
  MaskOptions options_;
  std::int64_t predictions_;
};

}  // namespace pipewright
