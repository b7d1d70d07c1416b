#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipewright/exec/lanes.h"
#include "pipewright/graph/graph.h"
#include "pipewright/nn/loss.h"
#include "pipewright/nn/sequence.h"
#include "pipewright/train/batch.h"

namespace pipewright {

/// How a loss puts the samples of a batch together.
enum class Reduction {
  kMean,  // divided by the weight of the whole: rows, or what Loss says
  kSum,   // not divided
};

struct AutoMicroBatchOptions {
  int num = 0;      // micro-batches of a batch; 0: what measures fastest with the first batch
  int lanes = 0;    // that run at a time; 0: one a core, on a GPU two; never more than num
  int threads = 0;  // intra-op threads of a lane; 0: the calling thread's, divided by the lanes
  Reduction reduction = Reduction::kMean;
  /// On a GPU: the step is recorded once as a CUDA graph, its lanes as branches, and replayed for
  /// all batches of the first one's shapes; others run as without. Gradients must be dense, nothing
  /// may be drawn at random.
  bool capture = false;
  /// Tries the first batch whole and split, and refuses what mixes samples.
  bool check = true;
  std::uint64_t seed = 1;  // of dropout: masks depend on it, the step and the micro-batch alone
};

struct MicroBatchResult {
  torch::Tensor loss;     // of the whole batch, one number, without a graph
  double weight = 0;      // what a mean was divided by
  int micro_batches = 0;  // fewer than asked for where there are fewer rows
};

template <typename F>
concept LossFunction = requires(const F& f, const torch::Tensor& t) {
  { f(t, t) } -> std::convertible_to<torch::Tensor>;
};

/// Splits the batches of a training loop into micro-batches that run beside each other.
///
///     AutoMicroBatch step(net, cross_entropy(), {.num = 4, .lanes = 2});
///     for (auto& [x, y] : batches) {
///       optimizer.zero_grad();
///       auto loss = step.backward({.inputs = {x}, .targets = {y}}).loss;   // was: loss.backward()
///       optimizer.step();
///     }
///
/// backward() adds to .grad what loss.backward() of the whole batch would: micro-batches count by
/// their true share, and are added in their order, so that bits depend on `num` and `threads`
/// alone. Parameters are shared, each micro-batch's gradients are apart until they are added, at
/// most 2 * lanes + 1 of them; sparse gradients stay sparse, and are coalesced. The module stays
/// the caller's, but while backward() runs nobody else uses it, and its forward must not write to
/// it.
class AutoMicroBatch {
 public:
  /// Any torch::nn module whose forward takes and returns tensors; `loss` compares its outputs with
  /// a batch's targets.
  template <typename Holder>
  requires detail::IsModule<Holder> AutoMicroBatch(Holder module, Loss loss,
                                                   AutoMicroBatchOptions options = {})
      : AutoMicroBatch(one_layer(std::move(module)), std::move(loss), options) {}

  /// A function of the first output and the first target that reduces all rows to one number, as
  /// options.reduction says. One that divides by something else than the rows (targets that are not
  /// ignored) needs a Loss, which knows its weight.
  template <typename Holder, LossFunction F>
  requires detail::IsModule<Holder> AutoMicroBatch(Holder module, F loss,
                                                   AutoMicroBatchOptions options = {})
      : AutoMicroBatch(one_layer(std::move(module)), plain_loss(loss, options.reduction), options) {
  }

  AutoMicroBatch(Sequence model, Loss loss, AutoMicroBatchOptions options = {});

  /// A TorchScript module. What mixes samples is found by analysing the graph with the first batch.
  AutoMicroBatch(Graph graph, Loss loss, AutoMicroBatchOptions options = {});
  /// One that returns its loss: how that reduces the batch is found likewise. Of a batch's targets
  /// only the rows are looked at.
  explicit AutoMicroBatch(Graph graph, AutoMicroBatchOptions options = {});

  ~AutoMicroBatch();
  AutoMicroBatch(const AutoMicroBatch&) = delete;
  AutoMicroBatch& operator=(const AutoMicroBatch&) = delete;

  /// One batch, which is split (`batch = whole`). Throws InvalidArgument for what cannot be split,
  /// and what the model threw; then .grad is as it was.
  MicroBatchResult backward(const Batch& batch);

  /// A micro-batch each (`batch = micro`): the same as one batch of all their rows.
  MicroBatchResult backward(const std::vector<Batch>& micro_batches);

  /// As chosen; 0 before the first batch where they are measured.
  int num() const;
  int lanes() const;
  /// What was measured, a line a choice; empty where nothing was.
  const std::string& measured() const;

 private:
  template <typename Holder>
  static Sequence one_layer(Holder module) {
    Sequence model;
    model.add("model", std::move(module));
    return model;
  }
  static Loss plain_loss(std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> f,
                         Reduction reduction);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pipewright
