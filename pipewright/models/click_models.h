#pragma once

#include <cstdint>

#include "pipewright/nn/sequence.h"

namespace pipewright {

/// Sizes of a model of click-through rates. The makers throw InvalidArgument where they do not fit.
struct ClickModelSizes {
  std::int64_t numeric = 0;  // numbers a sample, at least 1
  std::int64_t fields = 0;   // categorical ones, at least 2
  std::int64_t buckets = 0;  // ids of every field are 0 to buckets - 1; 0 is a missing one
  std::int64_t dim = 8;      // of an embedding
  std::int64_t width = 64;   // of a hidden layer
  std::int64_t depth = 2;    // hidden layers
  double dropout = 0;        // after each
  std::int64_t crosses = 0;  // of wide_deep: buckets for pairs of neighbouring fields; 0: none
  std::int64_t history = 2;  // of din: the last so many fields are what the user did before
  bool sparse = false;       // gradients of embeddings are sparse; torch's Adam does not take them
  bool later = false;        // as GptOptions::later
  std::uint64_t seed = 1;    // with `later`
};

// All take numbers (B, numeric) and ids (B, fields), as ClickSource gives them, and return the
// logits of a click (B). Every layer has a cost hint: multiply-adds a sample. Embeddings of all
// fields are one table, each field with rows of its own.

/// Wide & Deep: a weight for every id (and for pairs of neighbouring fields, hashed), beside hidden
/// layers over embeddings. Layers `embed`, `hidden0`, ..., `head`.
Sequence make_wide_deep(const ClickModelSizes& sizes);

/// DeepFM: a factorization machine, which multiplies the embeddings of every two fields, beside
/// hidden layers over the same embeddings. Layers `embed`, `hidden0`, ..., `head`.
Sequence make_deepfm(const ClickModelSizes& sizes);

/// DLRM: numbers through hidden layers to an embedding of their own, products of every two
/// embeddings, hidden layers over them. Layers `embed`, `bottom0`, ..., `interact`, `hidden0`, ...,
/// `head`.
Sequence make_dlrm(const ClickModelSizes& sizes);

/// DIN: what the user did before, each weighed by how it fits what is shown now (the field before
/// the history), then hidden layers. Missing parts of the history weigh nothing. Layers `embed`,
/// `attend`, `hidden0`, ..., `head`.
Sequence make_din(const ClickModelSizes& sizes);

}  // namespace pipewright
