#pragma once

#include <torch/csrc/autograd/function.h>

#include <vector>

#include "pipewright/optim/optimizer.h"
#include "pipewright/train/replicas.h"

namespace pipewright {

/// Sums a stage's gradients over the replicas, in buckets, while its last backward still runs:
///
///     start()    the last micro-batch's backward begins: what is added to a gradient makes it
///     final (hooks)    a bucket whose gradients are all final is on its way flush()    REDUCE: the
///     rest goes too finish()   gradients are sums over the replicas
///
/// One thread at a time. Buckets start in the same order on all replicas.
class Reducer {
 public:
  /// `early`: parameters whose gradients autograd adds to; `late`: those that are put together
  /// after the backward (tied weights), and go with finish().
  Reducer(Replicas* replicas, const Parameters& early, const Parameters& late);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  void start();
  void flush();
  void finish();

  /// After a failure.
  void abandon();

 private:
  class Hook;
  struct Bucket {
    Tensors parameters;
    std::size_t num_missing = 0;  // gradients that are not final yet
    Replicas::Pending sum;
  };

  void add_buckets(const Parameters& parameters);
  void arrived(std::size_t bucket);
  void start_ready();
  void start_bucket(Bucket* bucket);
  static void take(const Bucket& bucket);

  Replicas* replicas_;
  std::vector<Bucket> buckets_;
  std::size_t num_early_ = 0;    // buckets
  std::size_t num_started_ = 0;  // of them
  bool listening_ = false;
  std::vector<decltype(torch::autograd::Edge::function)> accumulators_;  // where the hooks are
};

}  // namespace pipewright
