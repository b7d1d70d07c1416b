#pragma once

#include <cstdint>

#include "pipewright/nn/sequence.h"

namespace pipewright {

/// Sizes of a decoder-only transformer. make_gpt() throws InvalidArgument where they do not fit.
struct GptOptions {
  std::int64_t layers = 4;  // blocks
  std::int64_t dim = 128;   // width of the residual stream; a multiple of heads
  std::int64_t heads = 4;
  std::int64_t seq = 128;  // the longest input; positions are learned
  std::int64_t vocab = 0;  // tokens are 0 to vocab - 1
  double dropout = 0;      // on embeddings, attention weights and both branches of a block
  bool tied = true;        // the head uses the token embedding's weight
  bool tanh_gelu = false;  // the approximation of GELU that GPT-2 was trained with
  /// Each layer is made by the process that runs it (Sequence::add_later), with weights that depend
  /// on `seed` and its name: for models that one process cannot hold.
  bool later = false;
  std::uint64_t seed = 1;  // with `later`
};

/// A language model as layers `embed`, `block0`, ..., `norm`, `head`:
///
///     tokens (B, T) --embed--> (B, T, dim) --blocks--> --norm--> --head--> logits (B, T, vocab)
///
/// T may be anything up to `seq`. A token sees itself and what is before it. Blocks normalise
/// before attention and before the MLP (GELU, 4 * dim). Weights are drawn as in GPT-2, from
/// LibTorch's default generator (but see `later`): call torch::manual_seed() first for the same
/// ones again.
///
/// Every layer has a cost hint: multiply-adds a token at T = seq. The partitioner so balances work,
/// of which an embedding has next to none and a head has much, rather than parameters.
Sequence make_gpt(const GptOptions& options);

}  // namespace pipewright
