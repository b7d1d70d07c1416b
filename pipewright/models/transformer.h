#pragma once

#include <torch/torch.h>

#include <initializer_list>
#include <utility>

#include "pipewright/nn/linear.h"
#include "pipewright/nn/sequence.h"

namespace pipewright {

// What the models here have in common.

/// Each at least 1. Throws InvalidArgument(`where`) naming the size.
void check_sizes(const char* where,
                 std::initializer_list<std::pair<const char*, std::int64_t>> sizes);
void check_heads(const char* where, std::int64_t dim, std::int64_t heads);
void check_dropout(const char* where, double dropout);

/// Tokens are (rows, length), no longer than `seq`.
void check_tokens(const char* where, const torch::Tensor& tokens, std::int64_t seq);

torch::nn::LayerNorm layer_norm(std::int64_t dim, double epsilon = 1e-5);
torch::nn::Linear linear(std::int64_t from, std::int64_t to, double deviation);

/// What the module's forward gives. That one adds the bias to inputs of three dimensions in a pass
/// of its own, in 32 bits under autocast; torch::linear has it in the multiplication: a block of
/// BERT-Large in bf16 takes a seventh less on an H200.
inline torch::Tensor project(const torch::nn::Linear& layer, const torch::Tensor& x) {
  return accumulating_linear(x, layer->weight, layer->bias);
}

/// Adds a layer that is made now, or by the process that runs it.
template <typename Maker>
void add_made(Sequence* model, bool later, std::string name, Maker make,
              LayerOptions options = {}) {
  if (later) {
    model->add_later(std::move(name), std::move(make), std::move(options));
  } else {
    model->add(std::move(name), make(), std::move(options));
  }
}

}  // namespace pipewright
