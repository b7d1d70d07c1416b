#include "pipewright/models/fused_block.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <optional>

#include "pipewright/base/error.h"
#include "pipewright/nn/leaf_gradient.h"
#include "pipewright/nn/own_node.h"
#include "pipewright/torch/compat_attention.h"

namespace pipewright {
namespace {

using torch::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// Edges of the node, in the order of its inputs.
enum Edge : std::size_t {
  kX,
  kNorm1,
  kNorm1Bias,
  kQkv,
  kQkvBias,
  kProj,
  kProjBias,
  kNorm2,
  kNorm2Bias,
  kUp,
  kUpBias,
  kDown,
  kDownBias,
  kNumEdges
};

/// What the forward makes, in rows (B * T).
struct Made {
  Tensor mean1, rstd1, h1;  // of norm1
  Tensor qkv;
  compat::CausalAttention attention;
  Tensor mixed;  // what attention gives, in rows
  Tensor y;
  Tensor mean2, rstd2, h2;  // of norm2
  Tensor up, act;           // before and after GELU
  Tensor z;
};

/// Gradients at the outputs of the projections, from which those of weights follow; and the norms'.
struct Chain {
  Tensor qkv, y, up, z;
  Tensor norm1, norm1_bias, norm2, norm2_bias;
};

struct Heads {
  Tensor query, key, value;  // (B, H, T, D), views
};

Heads heads_of(const Tensor& qkv, std::int64_t b, std::int64_t t, std::int64_t heads) {
  const auto parts = qkv.view({b, t, 3, heads, -1}).permute({2, 0, 3, 1, 4});
  return {parts.select(0, 0), parts.select(0, 1), parts.select(0, 2)};
}

Tensor rows_of(const Tensor& heads, std::int64_t rows) {  // (B, H, T, D) to (B * T, C)
  return heads.transpose(1, 2).reshape({rows, -1});
}

Made run_forward(const Tensor& x, const BlockWeights& w, const BlockOptions& o) {
  const auto b = x.size(0), t = x.size(1), c = x.size(2);
  const Tensor in = x.reshape({b * t, c});
  Made m;
  std::tie(m.h1, m.mean1, m.rstd1) =
      at::native_layer_norm(in, {c}, w.norm1, w.norm1_bias, o.epsilon);
  m.qkv = at::addmm(w.qkv_bias, m.h1, w.qkv.t());
  const Heads heads = heads_of(m.qkv, b, t, o.heads);
  m.attention = compat::causal_attention(heads.query, heads.key, heads.value);
  m.mixed = rows_of(m.attention.out, b * t);
  m.y = at::addmm(w.proj_bias, m.mixed, w.proj.t()).add_(in);
  std::tie(m.h2, m.mean2, m.rstd2) =
      at::native_layer_norm(m.y, {c}, w.norm2, w.norm2_bias, o.epsilon);
  m.up = at::addmm(w.up_bias, m.h2, w.up.t());
  m.act = at::gelu(m.up, o.gelu);
  m.z = at::addmm(w.down_bias, m.act, w.down.t()).add_(m.y).view({b, t, c});
  return m;
}

class BlockBackward : public torch::autograd::TraceableFunction {
 public:
  BlockBackward(const Tensor& x, const BlockWeights& w, const BlockOptions& options, Made made)
      : options_(options),
        made_(std::move(made)),
        sizes_(x.sizes().vec()),
        x_(x, false),
        norm1_(w.norm1, false),
        norm1_bias_(w.norm1_bias, false),
        qkv_(w.qkv, false),
        proj_(w.proj, false),
        norm2_(w.norm2, false),
        norm2_bias_(w.norm2_bias, false),
        up_(w.up, false),
        down_(w.down, false) {
    made_->z = Tensor();
  }

  std::string name() const override { return "BlockBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (torch::GradMode::is_enabled())
      throw Error("block", "a fused transformer block has no second derivative");
    at::AutoDispatchBelowADInplaceOrView guard;
    variable_list result(kNumEdges);
    if (!gradients[0].defined()) return result;
    internal_check(made_.has_value(), "a graph is gone through once");
    if (!chain_) run_chain(gradients[0].reshape({rows(), sizes_[2]}), &result[kX]);
    run_weights(&result);
    for (const Edge edge : {kNorm1, kNorm1Bias, kNorm2, kNorm2Bias}) {
      if (!wanted(edge)) result[edge] = Tensor();
    }
    if (wanted_later())
      keep_for_weights();
    else
      chain_.reset();
    return result;
  }

  void release_variables() override {
    made_.reset();
    chain_.reset();
    for (SavedVariable* saved :
         {&x_, &norm1_, &norm1_bias_, &qkv_, &proj_, &norm2_, &norm2_bias_, &up_, &down_})
      saved->reset_data();
  }

 private:
  std::int64_t rows() const { return sizes_[0] * sizes_[1]; }
  bool wanted(std::size_t edge) const { return task_should_compute_output(edge); }

  /// Weights have edges that this run is not asked for: the input half of a split backward.
  bool wanted_later() const {
    for (std::size_t edge = kNorm1; edge < kNumEdges; ++edge) {
      if (should_compute_output(edge) && !wanted(edge)) return true;
    }
    return false;
  }

  /// From the output's gradient to the input's.
  void run_chain(const Tensor& z, Tensor* x) {
    const std::int64_t b = sizes_[0], t = sizes_[1], c = sizes_[2];
    const Made& m = *made_;
    const auto self = shared_from_this();
    Chain g;
    g.z = z;
    g.up = at::gelu_backward(z.mm(down_.unpack(self)), m.up, options_.gelu);
    std::tie(g.y, g.norm2, g.norm2_bias) = at::native_layer_norm_backward(
        g.up.mm(up_.unpack(self)), m.y, {c}, m.mean2, m.rstd2, norm2_.unpack(self),
        norm2_bias_.unpack(self), {true, true, true});
    g.y.add_(z);
    const Tensor mixed = g.y.mm(proj_.unpack(self)).view({b, t, options_.heads, -1});
    const Heads heads = heads_of(m.qkv, b, t, options_.heads);
    const auto parts = compat::causal_attention_backward(mixed.transpose(1, 2), heads.query,
                                                         heads.key, heads.value, m.attention);
    g.qkv =
        at::cat({rows_of(parts[0], b * t), rows_of(parts[1], b * t), rows_of(parts[2], b * t)}, 1);
    Tensor in;
    std::tie(in, g.norm1, g.norm1_bias) = at::native_layer_norm_backward(
        g.qkv.mm(qkv_.unpack(self)), x_.unpack(self).reshape({b * t, c}), {c}, m.mean1, m.rstd1,
        norm1_.unpack(self), norm1_bias_.unpack(self), {true, true, true});
    if (wanted(kX)) *x = in.add_(g.y).view(sizes_);
    chain_ = std::move(g);
  }

  void run_weights(variable_list* result) const {
    const auto linear = [&](Edge weight, Edge bias, const Tensor& gradient, const Tensor& input) {
      if (wanted(weight) && !(own_ && add_product_to_leaf(next_edge(weight), gradient, input)))
        (*result)[weight] = gradient.t().mm(input);
      if (wanted(bias)) (*result)[bias] = gradient.sum(0);
    };
    const Chain& g = *chain_;
    linear(kDown, kDownBias, g.z, made_->act);
    linear(kUp, kUpBias, g.up, made_->h2);
    linear(kProj, kProjBias, g.y, made_->mixed);
    linear(kQkv, kQkvBias, g.qkv, made_->h1);
    (*result)[kNorm1] = g.norm1;
    (*result)[kNorm1Bias] = g.norm1_bias;
    (*result)[kNorm2] = g.norm2;
    (*result)[kNorm2Bias] = g.norm2_bias;
  }

  /// Lets go of what only the chain needed.
  void keep_for_weights() {
    Made& m = *made_;
    for (Tensor* tensor : {&m.mean1, &m.rstd1, &m.qkv, &m.y, &m.mean2, &m.rstd2, &m.up})
      *tensor = Tensor();
    m.attention = {};
    x_.reset_data();
  }

  bool own_ = OwnGraphs::any();
  BlockOptions options_;
  std::optional<Made> made_;
  std::optional<Chain> chain_;  // between the halves of a split backward
  std::vector<std::int64_t> sizes_;
  SavedVariable x_, norm1_, norm1_bias_, qkv_, proj_, norm2_, norm2_bias_, up_, down_;
};

}  // namespace

bool can_fuse_block(const Tensor& x) {
  return runs_plainly_on_cpu(x) && x.dim() == 3 && x.numel() > 0;
}

Tensor fused_block(const Tensor& x, const BlockWeights& w, const BlockOptions& options) {
  const Tensors inputs = {x,         w.norm1,     w.norm1_bias, w.qkv,        w.qkv_bias,
                          w.proj,    w.proj_bias, w.norm2,      w.norm2_bias, w.up,
                          w.up_bias, w.down,      w.down_bias};
  bool learns = false;
  for (const Tensor& input : inputs) learns = learns || input.requires_grad();
  Made made = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return run_forward(x, w, options);
  }();
  Tensor z = made.z;
  if (!learns || !torch::GradMode::is_enabled()) return z;
  const std::shared_ptr<BlockBackward> node(new BlockBackward(x, w, options, std::move(made)),
                                            torch::autograd::deleteNode);
  set_node(&z, node, inputs);
  return z;
}

}  // namespace pipewright
