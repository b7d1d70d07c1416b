#pragma once

#include <cstdint>

#include "pipewright/nn/sequence.h"

namespace pipewright {

/// Sizes of an encoder for masked language modelling. The defaults are BERT-Large's.
struct BertOptions {
  std::int64_t layers = 24;  // blocks
  std::int64_t dim = 1024;   // a multiple of heads
  std::int64_t heads = 16;
  std::int64_t seq = 512;      // the longest input; positions are learned
  std::int64_t vocab = 30522;  // tokens are 0 to vocab - 1
  double dropout = 0.1;        // on embeddings, attention weights and both branches of a block
  bool later = false;          // as GptOptions::later
  std::uint64_t seed = 1;      // with `later`
};

/// A masked language model as layers `embed`, `attention0`, `up0`, `down0`, ..., `head`:
///
///     tokens (B, T), masked (B, P) --> logits (B, P, vocab)
///
/// `masked` are the positions to predict, P of every row; only those pass the head, whose weight is
/// the token embedding's. All of a row is its first segment; the table has the second one's place
/// too, as BERT's own. Blocks normalise after attention and after the MLP (GELU, 4 * dim); they
/// are three layers each, so that recompute has more to choose from. Every layer has a cost hint:
/// multiply-adds a token. Throws InvalidArgument where the sizes do not fit.
Sequence make_bert(const BertOptions& options);

}  // namespace pipewright
