#include "pipewright/models/gpt.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "pipewright/models/fused_block.h"
#include "pipewright/models/transformer.h"
#include "pipewright/torch/compat.h"

namespace pipewright {
namespace {

constexpr const char* kWhere = "gpt";
constexpr double kInitialDeviation = 0.02;  // GPT-2's

void check(const GptOptions& o) {
  check_sizes(kWhere, {{"layers", o.layers},
                       {"dim", o.dim},
                       {"heads", o.heads},
                       {"seq", o.seq},
                       {"vocab", o.vocab}});
  check_heads(kWhere, o.dim, o.heads);
  check_dropout(kWhere, o.dropout);
}

/// What enters a block is a sum of 2 * layers branches: each starts smaller, so that the sum does
/// not grow with the depth.
double branch_deviation(const GptOptions& o) {
  return kInitialDeviation / std::sqrt(2.0 * static_cast<double>(o.layers));
}

struct EmbedImpl : torch::nn::Module {
  explicit EmbedImpl(const GptOptions& o) : seq(o.seq), dropout(o.dropout) {
    token = register_parameter("token", torch::empty({o.vocab, o.dim}));
    position = register_parameter("position", torch::empty({o.seq, o.dim}));
    torch::nn::init::normal_(token, 0, kInitialDeviation);
    torch::nn::init::normal_(position, 0, kInitialDeviation);
  }

  torch::Tensor forward(torch::Tensor tokens) {  // (B, T)
    check_tokens(kWhere, tokens, seq);
    const std::int64_t length = tokens.size(1);
    const auto x = torch::embedding(token, tokens) + position.slice(0, 0, length);
    return torch::dropout(x, dropout, is_training());  // (B, T, C)
  }

  std::int64_t seq;
  double dropout;
  torch::Tensor token, position;
};
TORCH_MODULE(Embed);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const GptOptions& o)
      : heads(o.heads),
        dropout(o.dropout),
        gelu(o.tanh_gelu ? "tanh" : "none"),
        norm1(register_module("norm1", layer_norm(o.dim))),
        norm2(register_module("norm2", layer_norm(o.dim))),
        qkv(register_module("qkv", linear(o.dim, 3 * o.dim, kInitialDeviation))),
        proj(register_module("proj", linear(o.dim, o.dim, branch_deviation(o)))),
        up(register_module("up", linear(o.dim, 4 * o.dim, kInitialDeviation))),
        down(register_module("down", linear(4 * o.dim, o.dim, branch_deviation(o)))) {}

  torch::Tensor forward(torch::Tensor x) {  // (B, T, C)
    if (!(is_training() && dropout > 0) && can_fuse_block(x))
      return fused_block(x, weights(), {heads, norm1->options.eps(), gelu});
    x = x + drop(attend(norm1(x)));
    return x + drop(project(down, torch::gelu(project(up, norm2(x)), gelu)));
  }

  torch::Tensor attend(const torch::Tensor& x) {
    const auto b = x.size(0), t = x.size(1), c = x.size(2);
    const auto parts =
        project(qkv, x).view({b, t, 3, heads, c / heads}).permute({2, 0, 3, 1, 4}).unbind();
    const auto mixed = compat::attention(parts[0], parts[1], parts[2],
                                         {.dropout = is_training() ? dropout : 0, .causal = true});
    return project(proj, mixed.transpose(1, 2).reshape({b, t, c}));
  }

  BlockWeights weights() const {
    return {norm1->weight, norm1->bias, qkv->weight, qkv->bias, proj->weight, proj->bias,
            norm2->weight, norm2->bias, up->weight,  up->bias,  down->weight, down->bias};
  }

  torch::Tensor drop(const torch::Tensor& x) { return torch::dropout(x, dropout, is_training()); }

  std::int64_t heads;
  double dropout;
  const char* gelu;
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, proj, up, down;
};
TORCH_MODULE(Block);

struct HeadImpl : torch::nn::Module {
  /// Registers the very tensor it is given: an embedding's is then tied.
  explicit HeadImpl(torch::Tensor table) { weight = register_parameter("weight", table); }
  torch::Tensor forward(torch::Tensor x) { return torch::matmul(x, weight.t()); }  // (B, T, vocab)
  torch::Tensor weight;                                                            // (vocab, C)
};
TORCH_MODULE(Head);

torch::Tensor head_weight(const GptOptions& o, const torch::Tensor& token) {
  if (o.tied) return token;
  const auto weight = torch::empty({o.vocab, o.dim});
  torch::nn::init::normal_(weight, 0, kInitialDeviation);
  return weight;
}

/// Multiply-adds a token.
struct Costs {
  explicit Costs(const GptOptions& o) {
    const auto dim = static_cast<double>(o.dim);
    embed = dim;     // the sum of two rows
    norm = 4 * dim;  // mean, variance, scale, shift
    // qkv 3, proj 1, up and down 4 each; scores and their use, masked ones included.
    block = 12 * dim * dim + 2 * static_cast<double>(o.seq) * dim + 2 * norm;
    head = dim * static_cast<double>(o.vocab);
  }
  double embed, block, norm, head;
};

/// `token`: the embedding's weight, where that is made already.
void add_head(const GptOptions& o, double cost, const torch::Tensor& token, Sequence* model) {
  if (o.later && o.tied) {
    model->add_later("head", [](const Tensors& tied) { return Head(tied[0]); },
                     {.cost = cost, .tied = {"embed.token"}});
  } else {
    add_made(model, o.later, "head", [o, token] { return Head(head_weight(o, token)); },
             {.cost = cost});
  }
}

}  // namespace

Sequence make_gpt(const GptOptions& options) {
  check(options);
  const Costs costs(options);
  Sequence model;
  model.set_seed(options.seed);
  torch::Tensor token;
  if (options.later) {
    model.add_later("embed", [options] { return Embed(options); }, {.cost = costs.embed});
  } else {
    const Embed embed(options);
    token = embed->token;
    model.add("embed", embed, {.cost = costs.embed});
  }
  for (std::int64_t i = 0; i < options.layers; ++i) {
    add_made(&model, options.later, fmt::format("block{}", i), [options] { return Block(options); },
             {.cost = costs.block});
  }
  add_made(&model, options.later, "norm", [options] { return layer_norm(options.dim); },
           {.cost = costs.norm});
  add_head(options, costs.head, token, &model);
  return model;
}

}  // namespace pipewright
