#pragma once

#include <cstdint>

#include "pipewright/nn/sequence.h"

namespace pipewright {

/// Sizes of a transformer that translates: T(layers, hidden, heads) of the GPipe paper, whose dim
/// is 1024 and whose heads are 64 wide.
struct EncoderDecoderOptions {
  std::int64_t layers = 6;      // of the encoder, and as many of the decoder
  std::int64_t hidden = 8192;   // width of the MLPs
  std::int64_t heads = 16;      // of every attention
  std::int64_t dim = 1024;      // width of the residual streams
  std::int64_t head_width = 0;  // 0: dim / heads, which heads then divide
  std::int64_t seq = 128;       // the longest sentence of either side
  std::int64_t source_vocab = 0;
  std::int64_t target_vocab = 0;
  std::int64_t pad = 0;    // the token that fills sentences of the source up
  double dropout = 0.1;    // on embeddings, attention weights and all branches
  bool tied = true;        // the head uses the weight of the target's embedding
  bool later = false;      // as GptOptions::later
  std::uint64_t seed = 1;  // with `later`
};

/// A translator as layers `source_embed`, `encoder0`, ..., `target_embed`, `decoder0`, ..., `head`:
///
///     source (B, S), target (B, T) --> logits (B, T, target_vocab)
///
/// What the encoder made travels with the decoder's stream from layer to layer, and so do the
/// places where the source is not filled up; the target waits in a skip until `target_embed`. A
/// token of the target sees the whole source, itself and what is before it. Blocks normalise before
/// each branch; positions are sines. Every layer has a cost hint: multiply-adds a token of
/// sentences of `seq` tokens. Throws InvalidArgument where the sizes do not fit.
Sequence make_encoder_decoder(const EncoderDecoderOptions& options);

}  // namespace pipewright
