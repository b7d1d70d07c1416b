#include "pipewright/models/fused_block.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <optional>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/models/block_math.h"
#include "pipewright/nn/leaf_gradient.h"
#include "pipewright/nn/own_node.h"

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

class BlockBackward : public torch::autograd::TraceableFunction {
 public:
  BlockBackward(const Tensor& x, const BlockWeights& w, const BlockOptions& options,
                BlockValues made)
      : options_(options),
        made_(std::move(made)),
        sizes_(x.sizes().vec()),
        x_(x, false),
        norm1_(w.norm1, false),
        qkv_(w.qkv, false),
        proj_(w.proj, false),
        norm2_(w.norm2, false),
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
    if (!chain_) run_chain(gradients[0], &result[kX]);
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
    for (SavedVariable* saved : {&x_, &norm1_, &qkv_, &proj_, &norm2_, &up_, &down_})
      saved->reset_data();
  }

 private:
  bool wanted(std::size_t edge) const { return task_should_compute_output(edge); }

  /// Weights have edges that this run is not asked for: the input half of a split backward.
  bool wanted_later() const {
    for (std::size_t edge = kNorm1; edge < kNumEdges; ++edge) {
      if (should_compute_output(edge) && !wanted(edge)) return true;
    }
    return false;
  }

  /// From the output's gradient to the input's.
  void run_chain(const Tensor& gradient, Tensor* x) {
    const auto self = shared_from_this();
    const auto in_rows = [&](const Tensor& tensor) {
      return tensor.reshape({sizes_[0] * sizes_[1], sizes_[2]}).contiguous();
    };
    chain_ = block_backward(in_rows(x_.unpack(self)), in_rows(gradient), *made_,
                            {norm1_.unpack(self), qkv_.unpack(self), proj_.unpack(self),
                             norm2_.unpack(self), up_.unpack(self), down_.unpack(self)},
                            options_, sizes_[1]);
    const Tensor in = std::exchange(chain_->x, Tensor());
    if (wanted(kX)) *x = in.view(sizes_);
  }

  void run_weights(variable_list* result) const {
    const auto linear = [&](Edge weight, Edge bias, const Tensor& gradient, const Tensor& input) {
      if (wanted(weight) && !(own_ && add_product_to_leaf(next_edge(weight), gradient, input)))
        (*result)[weight] = gradient.t().mm(input);
      if (wanted(bias)) (*result)[bias] = bias_gradient(gradient);
    };
    const BlockGradients& g = *chain_;
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
    BlockValues& m = *made_;
    for (Tensor* tensor : {&m.mean1, &m.rstd1, &m.qkv, &m.sums, &m.y, &m.mean2, &m.rstd2, &m.up})
      *tensor = Tensor();
    x_.reset_data();
  }

  bool own_ = OwnGraphs::any();
  BlockOptions options_;
  std::optional<BlockValues> made_;
  std::optional<BlockGradients> chain_;  // between the halves of a split backward
  std::vector<std::int64_t> sizes_;
  SavedVariable x_, norm1_, qkv_, proj_, norm2_, up_, down_;
};

}  // namespace

bool can_fuse_block(const Tensor& x) {
  return runs_plainly_on_cpu(x) && x.dim() == 3 && x.numel() > 0;
}

Tensor fused_block(const Tensor& x, const BlockWeights& w, const BlockOptions& options) {
  const Tensors inputs = {x,         w.norm1,     w.norm1_bias, w.qkv,        w.qkv_bias,
                          w.proj,    w.proj_bias, w.norm2,      w.norm2_bias, w.up,
                          w.up_bias, w.down,      w.down_bias};
  check_block(x, w, options);
  bool learns = false;
  for (const Tensor& input : inputs) learns = learns || input.requires_grad();
  BlockValues made = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return block_forward(x, w, options);
  }();
  Tensor z = made.z;
  if (!learns || !torch::GradMode::is_enabled()) return z;
  const std::shared_ptr<BlockBackward> node(new BlockBackward(x, w, options, std::move(made)),
                                            torch::autograd::deleteNode);
  set_node(&z, node, inputs);
  return z;
}

}  // namespace pipewright
