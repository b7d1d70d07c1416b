#include "pipewright/data/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/data/rows.h"
#include "pipewright/input/draw.h"

namespace pipewright {
namespace {

/// Where the piece of that number begins: pieces begin every `step` tokens, the last one so that it
/// ends with the stream.
std::int64_t piece_start(const TokenStream& stream, std::int64_t piece, std::int64_t step,
                         std::int64_t piece_tokens) {
  return std::min(piece * step, stream.size() - piece_tokens);
}

/// The pieces that cover `tokens`, `step` at a time.
std::int64_t num_pieces(std::int64_t tokens, std::int64_t step) { return (tokens - 1) / step + 1; }

void check_length(const TokenStream& stream, std::int64_t length, std::int64_t least,
                  std::int64_t needed) {
  if (length < least) {
    throw InvalidArgument("data", fmt::format("length = {}; use {} or more", length, least));
  }
  if (stream.size() < needed) {
    throw InvalidArgument("data", fmt::format("the text has {} tokens, sequences of length {} need "
                                              "{}; use a shorter length, or more text",
                                              stream.size(), length, needed));
  }
}

}  // namespace

TokenSource::TokenSource(std::shared_ptr<const TokenStream> stream, std::int64_t length)
    : stream_(std::move(stream)), length_(length) {
  check_length(*stream_, length, 1, length + 1);
}

std::int64_t TokenSource::size() const { return num_pieces(stream_->size() - 1, length_); }

SampleBatch TokenSource::batch(std::span<const std::int64_t> samples,
                               std::int64_t /*epoch*/) const {
  const auto tokens = int64_rows(samples.size(), length_ + 1);
  for (std::size_t row = 0; row < samples.size(); ++row) {
    stream_->read(piece_start(*stream_, samples[row], length_, length_ + 1), row_of(tokens, row));
  }
  return {{tokens.slice(1, 0, length_).contiguous()}, {tokens.slice(1, 1).contiguous()}};
}

MaskedSource::MaskedSource(std::shared_ptr<const TokenStream> stream,
                           std::shared_ptr<const Tokenizer> tokenizer, std::int64_t length,
                           std::uint64_t seed, const MaskOptions& options)
    : stream_(std::move(stream)),
      tokenizer_(std::move(tokenizer)),
      length_(length),
      seed_(seed),
      options_(options) {
  check(options);
  check_length(*stream_, length, 3, length - 2);
  predictions_ = num_chosen(length - 2, options);
}

std::int64_t MaskedSource::size() const { return num_pieces(stream_->size(), length_ - 2); }

SampleBatch MaskedSource::batch(std::span<const std::int64_t> samples, std::int64_t epoch) const {
  const auto tokens = int64_rows(samples.size(), length_);
  const auto places = int64_rows(samples.size(), predictions_);
  const auto originals = int64_rows(samples.size(), predictions_);
  const std::int64_t inside = length_ - 2;
  for (std::size_t row = 0; row < samples.size(); ++row) {
    const auto sequence = row_of(tokens, row);
    sequence.front() = tokenizer_->begin();
    sequence.back() = tokenizer_->end();
    stream_->read(piece_start(*stream_, samples[row], inside, inside),
                  sequence.subspan(1, static_cast<std::size_t>(inside)));
    Draw draw(seed_from(
        {seed_, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(samples[row])}));
    mask_tokens(sequence, *tokenizer_, options_, &draw, kIgnoredTarget, row_of(places, row),
                row_of(originals, row));
  }
  return {{tokens, places}, {originals}};
}

}  // namespace pipewright
