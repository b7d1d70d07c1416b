#include "pipewright/models/transformer.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"

namespace pipewright {

void check_sizes(const char* where,
                 std::initializer_list<std::pair<const char*, std::int64_t>> sizes) {
  for (const auto& [name, value] : sizes) {
    if (value < 1) throw InvalidArgument(where, fmt::format("{} = {}; use 1 or more", name, value));
  }
}

void check_heads(const char* where, std::int64_t dim, std::int64_t heads) {
  if (dim % heads != 0)
    throw InvalidArgument(where,
                          fmt::format("dim = {} is not a multiple of heads = {}", dim, heads));
}

void check_dropout(const char* where, double dropout) {
  if (!(dropout >= 0 && dropout < 1))
    throw InvalidArgument(where, fmt::format("dropout = {}; use 0 (off) to below 1", dropout));
}

void check_tokens(const char* where, const torch::Tensor& tokens, std::int64_t seq) {
  if (tokens.dim() != 2) {
    throw InvalidArgument(
        where, fmt::format("tokens have {} dimensions; they must be (rows, length)", tokens.dim()));
  }
  if (tokens.size(1) > seq) {
    throw InvalidArgument(where, fmt::format("a sequence of {} tokens, but the model was made for "
                                             "up to {}",
                                             tokens.size(1), seq));
  }
}

torch::nn::LayerNorm layer_norm(std::int64_t dim, double epsilon) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim}).eps(epsilon));
}

torch::nn::Linear linear(std::int64_t from, std::int64_t to, double deviation) {
  torch::nn::Linear made(from, to);
  torch::nn::init::normal_(made->weight, 0, deviation);
  torch::nn::init::zeros_(made->bias);
  return made;
}

}  // namespace pipewright
