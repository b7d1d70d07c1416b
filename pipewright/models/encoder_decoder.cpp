#include "pipewright/models/encoder_decoder.h"

#include <fmt/format.h>

#include <cmath>

#include "pipewright/base/error.h"
#include "pipewright/models/transformer.h"
#include "pipewright/torch/compat.h"

namespace pipewright {
namespace {

constexpr const char* kWhere = "encoder_decoder";

using Options = EncoderDecoderOptions;

/// All heads side by side.
std::int64_t inner_width(const Options& o) {
  return o.head_width > 0 ? o.heads * o.head_width : o.dim;
}

void check(const Options& o) {
  check_sizes(kWhere, {{"layers", o.layers},
                       {"hidden", o.hidden},
                       {"heads", o.heads},
                       {"dim", o.dim},
                       {"seq", o.seq},
                       {"source_vocab", o.source_vocab},
                       {"target_vocab", o.target_vocab}});
  if (o.head_width < 0)
    throw InvalidArgument(kWhere, fmt::format("head_width = {}; use 0 or more", o.head_width));
  if (o.head_width == 0) check_heads(kWhere, o.dim, o.heads);
  check_dropout(kWhere, o.dropout);
}

/// Such that what leaves is about as large as what enters.
torch::nn::Linear projection(std::int64_t from, std::int64_t to) {
  return linear(from, to, std::sqrt(2.0 / static_cast<double>(from + to)));
}

/// Sines and cosines of wave lengths from 2 pi to 10000 times that: (seq, dim).
torch::Tensor wave_table(std::int64_t seq, std::int64_t dim) {
  const auto place = torch::arange(seq, torch::kFloat64).unsqueeze(1);
  const auto channel = torch::arange(dim, torch::kInt64);
  const auto pair = channel.div(2, "floor").to(torch::kFloat64);
  const auto angle = place / torch::pow(10000.0, 2 * pair / static_cast<double>(dim));
  return torch::where(channel.remainder(2) == 0, torch::sin(angle), torch::cos(angle))
      .to(torch::kFloat32);
}

struct EmbeddingImpl : torch::nn::Module {
  EmbeddingImpl(const Options& o, std::int64_t vocab)
      : scale(std::sqrt(static_cast<double>(o.dim))), seq(o.seq), dropout(o.dropout) {
    token = register_parameter("token", torch::empty({vocab, o.dim}));
    torch::nn::init::normal_(token, 0, 1 / scale);
    waves = register_buffer("waves", wave_table(o.seq, o.dim));
  }

  torch::Tensor embed(const torch::Tensor& tokens) {  // (B, T) --> (B, T, C)
    check_tokens(kWhere, tokens, seq);
    const auto x = torch::embedding(token, tokens) * scale + waves.slice(0, 0, tokens.size(1));
    return torch::dropout(x, dropout, is_training());
  }

  double scale;
  std::int64_t seq;
  double dropout;
  torch::Tensor token, waves;
};

struct SourceEmbedImpl : EmbeddingImpl {
  explicit SourceEmbedImpl(const Options& o) : EmbeddingImpl(o, o.source_vocab), pad(o.pad) {}

  /// The stream, which of its places count, and the target, which waits.
  Tensors forward(const torch::Tensor& source, const torch::Tensor& target) {
    return {embed(source), source.ne(pad), target};
  }

  std::int64_t pad;
};
TORCH_MODULE(SourceEmbed);

/// Queries from one stream, keys and values from one or the other.
struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const Options& o)
      : heads(o.heads),
        dropout(o.dropout),
        query(register_module("query", projection(o.dim, inner_width(o)))),
        key_value(register_module("key_value", projection(o.dim, 2 * inner_width(o)))),
        out(register_module("out", projection(inner_width(o), o.dim))) {}

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& seen,
                        compat::AttentionOptions options) {
    const auto b = x.size(0), t = x.size(1), s = seen.size(1);
    const auto q = project(query, x).view({b, t, heads, -1}).transpose(1, 2);  // (B, H, T, W)
    const auto kv =
        project(key_value, seen).view({b, s, 2, heads, -1}).permute({2, 0, 3, 1, 4}).unbind();
    options.dropout = is_training() ? dropout : 0;
    const auto mixed = compat::attention(q, kv[0], kv[1], options);
    return project(out, mixed.transpose(1, 2).reshape({b, t, -1}));
  }

  std::int64_t heads;
  double dropout;
  torch::nn::Linear query, key_value, out;
};
TORCH_MODULE(Attention);

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(const Options& o)
      : up(register_module("up", projection(o.dim, o.hidden))),
        down(register_module("down", projection(o.hidden, o.dim))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return project(down, torch::relu(project(up, x)));
  }
  torch::nn::Linear up, down;
};
TORCH_MODULE(Mlp);

/// (B, S) of places that count, as attention() takes it.
compat::AttentionOptions only(const torch::Tensor& counts) {
  return {.visible = counts.unsqueeze(1).unsqueeze(1)};
}

struct EncoderImpl : torch::nn::Module {
  explicit EncoderImpl(const Options& o)
      : dropout(o.dropout),
        norm1(register_module("norm1", layer_norm(o.dim))),
        norm2(register_module("norm2", layer_norm(o.dim))),
        attention(register_module("attention", Attention(o))),
        mlp(register_module("mlp", Mlp(o))) {}

  Tensors forward(const Tensors& inputs) {
    const auto& counts = inputs.at(1);
    auto x = inputs.at(0);  // (B, S, C)
    const auto y = norm1(x);
    x = x + torch::dropout(attention(y, y, only(counts)), dropout, is_training());
    x = x + torch::dropout(mlp(norm2(x)), dropout, is_training());
    return {x, counts};
  }

  double dropout;
  torch::nn::LayerNorm norm1, norm2;
  Attention attention;
  Mlp mlp;
};
TORCH_MODULE(Encoder);

struct TargetEmbedImpl : EmbeddingImpl {
  explicit TargetEmbedImpl(const Options& o)
      : EmbeddingImpl(o, o.target_vocab), norm(register_module("norm", layer_norm(o.dim))) {}

  /// The encoder is done: its stream becomes what the decoder looks at.
  Tensors forward(const torch::Tensor& x, const torch::Tensor& counts,
                  const torch::Tensor& target) {
    return {embed(target), norm(x), counts};
  }

  torch::nn::LayerNorm norm;
};
TORCH_MODULE(TargetEmbed);

struct DecoderImpl : torch::nn::Module {
  /// `is_last`: nobody after it looks at the source.
  DecoderImpl(const Options& o, bool is_last)
      : last(is_last),
        dropout(o.dropout),
        norm1(register_module("norm1", layer_norm(o.dim))),
        norm2(register_module("norm2", layer_norm(o.dim))),
        norm3(register_module("norm3", layer_norm(o.dim))),
        own(register_module("own", Attention(o))),
        source(register_module("source", Attention(o))),
        mlp(register_module("mlp", Mlp(o))) {}

  Tensors forward(const Tensors& inputs) {
    const auto &seen = inputs.at(1), &counts = inputs.at(2);
    auto x = inputs.at(0);  // (B, T, C)
    const auto y = norm1(x);
    x = x + drop(own(y, y, compat::AttentionOptions{.causal = true}));
    x = x + drop(source(norm2(x), seen, only(counts)));
    x = x + drop(mlp(norm3(x)));
    if (last) return {x};
    return {x, seen, counts};
  }

  torch::Tensor drop(const torch::Tensor& x) { return torch::dropout(x, dropout, is_training()); }

  bool last;
  double dropout;
  torch::nn::LayerNorm norm1, norm2, norm3;
  Attention own, source;
  Mlp mlp;
};
TORCH_MODULE(Decoder);

struct HeadImpl : torch::nn::Module {
  /// Registers the very tensor it is given: the embedding's is then tied.
  HeadImpl(const Options& o, torch::Tensor table)
      : norm(register_module("norm", layer_norm(o.dim))) {
    weight = register_parameter("weight", table);
  }
  torch::Tensor forward(torch::Tensor x) { return torch::matmul(norm(x), weight.t()); }
  torch::nn::LayerNorm norm;
  torch::Tensor weight;  // (vocab, C)
};
TORCH_MODULE(Head);

torch::Tensor own_table(const Options& o) {
  const auto weight = torch::empty({o.target_vocab, o.dim});
  torch::nn::init::normal_(weight, 0, 1 / std::sqrt(static_cast<double>(o.dim)));
  return weight;
}

/// Multiply-adds a token.
struct Costs {
  explicit Costs(const Options& o) {
    const auto dim = static_cast<double>(o.dim);
    const auto inner = static_cast<double>(inner_width(o));
    const double attention = 4 * dim * inner + 2 * static_cast<double>(o.seq) * inner;
    embed = 2 * dim;
    encoder = attention + 2 * dim * static_cast<double>(o.hidden);
    decoder = encoder + attention;
    head = dim * static_cast<double>(o.target_vocab);
  }
  double embed, encoder, decoder, head;
};

}  // namespace

Sequence make_encoder_decoder(const EncoderDecoderOptions& o) {
  check(o);
  const Costs costs(o);
  Sequence model;
  model.set_seed(o.seed);
  add_made(&model, o.later, "source_embed", [o] { return SourceEmbed(o); },
           {.stash = {"target"}, .cost = costs.embed});
  for (std::int64_t i = 0; i < o.layers; ++i) {
    add_made(&model, o.later, fmt::format("encoder{}", i), [o] { return Encoder(o); },
             {.cost = costs.encoder});
  }
  torch::Tensor table;
  const LayerOptions of_target = {.pop = {"target"}, .cost = costs.embed};
  if (o.later) {
    model.add_later(
        "target_embed", [o] { return TargetEmbed(o); }, of_target);
  } else {
    const TargetEmbed embed(o);
    table = embed->token;
    model.add("target_embed", embed, of_target);
  }
  for (std::int64_t i = 0; i < o.layers; ++i) {
    add_made(&model, o.later, fmt::format("decoder{}", i),
             [o, last = i + 1 == o.layers] { return Decoder(o, last); }, {.cost = costs.decoder});
  }
  if (o.later && o.tied) {
    model.add_later("head", [o](const Tensors& tied) { return Head(o, tied[0]); },
                    {.cost = costs.head, .tied = {"target_embed.token"}});
  } else {
    add_made(&model, o.later, "head", [o, table] { return Head(o, o.tied ? table : own_table(o)); },
             {.cost = costs.head});
  }
  return model;
}

}  // namespace pipewright
