#include "pipewright/models/bert.h"

#include <fmt/format.h>

#include <cmath>

#include "pipewright/models/transformer.h"
#include "pipewright/torch/compat.h"

namespace pipewright {
namespace {

constexpr const char* kWhere = "bert";
constexpr double kInitialDeviation = 0.02;  // BERT's
constexpr double kNormEpsilon = 1e-12;      // likewise
constexpr std::int64_t kSegments = 2;       // likewise

struct EmbedImpl : torch::nn::Module {
  explicit EmbedImpl(const BertOptions& o)
      : seq(o.seq),
        dropout(o.dropout),
        norm(register_module("norm", layer_norm(o.dim, kNormEpsilon))) {
    token = register_parameter("token", torch::empty({o.vocab, o.dim}));
    position = register_parameter("position", torch::empty({o.seq, o.dim}));
    segment = register_parameter("segment", torch::empty({kSegments, o.dim}));
    torch::nn::init::normal_(token, 0, kInitialDeviation);
    torch::nn::init::normal_(position, 0, kInitialDeviation);
    torch::nn::init::normal_(segment, 0, kInitialDeviation);
  }

  /// The masked positions go straight to the head, which pops them.
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& tokens,
                                                   const torch::Tensor& masked) {
    check_tokens(kWhere, tokens, seq);
    const auto places = position.slice(0, 0, tokens.size(1)) + segment[0];
    const auto x = norm(torch::embedding(token, tokens) + places);
    return {torch::dropout(x, dropout, is_training()), masked};
  }

  std::int64_t seq;
  double dropout;
  torch::nn::LayerNorm norm;
  torch::Tensor token, position, segment;
};
TORCH_MODULE(Embed);

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const BertOptions& o)
      : heads(o.heads),
        dropout(o.dropout),
        qkv(register_module("qkv", linear(o.dim, 3 * o.dim, kInitialDeviation))),
        proj(register_module("proj", linear(o.dim, o.dim, kInitialDeviation))),
        norm(register_module("norm", layer_norm(o.dim, kNormEpsilon))) {}

  torch::Tensor forward(const torch::Tensor& x) {  // (B, T, C)
    const auto b = x.size(0), t = x.size(1), c = x.size(2);
    const auto parts =
        project(qkv, x).view({b, t, 3, heads, c / heads}).permute({2, 0, 3, 1, 4}).unbind();
    const auto mixed =
        compat::attention(parts[0], parts[1], parts[2], {.dropout = is_training() ? dropout : 0});
    const auto y = project(proj, mixed.transpose(1, 2).reshape({b, t, c}));
    return norm(x + torch::dropout(y, dropout, is_training()));
  }

  std::int64_t heads;
  double dropout;
  torch::nn::Linear qkv, proj;
  torch::nn::LayerNorm norm;
};
TORCH_MODULE(Attention);

/// The MLP in two, so that its larger half can be run again without the other: what leaves the
/// first is what its activation reads, and what the residual adds.
struct UpImpl : torch::nn::Module {
  explicit UpImpl(const BertOptions& o)
      : up(register_module("up", linear(o.dim, 4 * o.dim, kInitialDeviation))) {}

  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
    return {project(up, x), x};
  }

  torch::nn::Linear up;
};
TORCH_MODULE(Up);

struct DownImpl : torch::nn::Module {
  explicit DownImpl(const BertOptions& o)
      : dropout(o.dropout),
        down(register_module("down", linear(4 * o.dim, o.dim, kInitialDeviation))),
        norm(register_module("norm", layer_norm(o.dim, kNormEpsilon))) {}

  torch::Tensor forward(const torch::Tensor& wide, const torch::Tensor& x) {
    const auto y = project(down, torch::gelu(wide));
    return norm(x + torch::dropout(y, dropout, is_training()));
  }

  double dropout;
  torch::nn::Linear down;
  torch::nn::LayerNorm norm;
};
TORCH_MODULE(Down);

struct HeadImpl : torch::nn::Module {
  /// Registers the very tensor it is given: the embedding's is tied.
  HeadImpl(const BertOptions& o, torch::Tensor table)
      : transform(register_module("transform", linear(o.dim, o.dim, kInitialDeviation))),
        norm(register_module("norm", layer_norm(o.dim, kNormEpsilon))) {
    weight = register_parameter("weight", table);
    bias = register_parameter("bias", torch::zeros({o.vocab}));
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& masked) {  // (B, T, C), (B, P)
    const auto at = masked.unsqueeze(-1).expand({-1, -1, x.size(2)});
    const auto chosen = norm(torch::gelu(project(transform, x.gather(1, at))));
    return torch::linear(chosen, weight, bias);  // (B, P, vocab)
  }

  torch::nn::Linear transform;
  torch::nn::LayerNorm norm;
  torch::Tensor weight, bias;
};
TORCH_MODULE(Head);

}  // namespace

Sequence make_bert(const BertOptions& options) {
  check_sizes(kWhere, {{"layers", options.layers},
                       {"dim", options.dim},
                       {"heads", options.heads},
                       {"seq", options.seq},
                       {"vocab", options.vocab}});
  check_heads(kWhere, options.dim, options.heads);
  check_dropout(kWhere, options.dropout);
  const auto dim = static_cast<double>(options.dim);
  const bool later = options.later;
  Sequence model;
  model.set_seed(options.seed);
  torch::Tensor token;
  if (options.later) {
    model.add_later("embed", [options] { return Embed(options); },
                    {.stash = {"masked"}, .cost = dim});
  } else {
    const Embed embed(options);
    token = embed->token;
    model.add("embed", embed, {.stash = {"masked"}, .cost = dim});
  }
  for (std::int64_t i = 0; i < options.layers; ++i) {
    add_made(&model, later, fmt::format("attention{}", i), [options] { return Attention(options); },
             {.cost = 4 * dim * dim + 2 * static_cast<double>(options.seq) * dim});
    add_made(&model, later, fmt::format("up{}", i), [options] { return Up(options); },
             {.cost = 4 * dim * dim});
    add_made(&model, later, fmt::format("down{}", i), [options] { return Down(options); },
             {.cost = 4 * dim * dim});
  }
  // About a seventh of the tokens pass the head.
  LayerOptions of_head = {.pop = {"masked"}, .cost = dim * static_cast<double>(options.vocab) / 7};
  if (later) {
    of_head.tied = {"embed.token"};
    model.add_later(
        "head", [options](const Tensors& tied) { return Head(options, tied[0]); }, of_head);
  } else {
    model.add("head", Head(options, token), of_head);
  }
  return model;
}

}  // namespace pipewright
