#pragma once

#include <c10/core/Event.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "pipewright/nn/tensors.h"

namespace pipewright {

/// The gradients of a mini-batch, added in the order of its micro-batches whichever is done first:
/// bits depend on neither the number of lanes nor their timing.
///
///     lane 0   m0 ------. add   m2 ----------------. add       tail
///     lane 1   m1 ----------. add   m3 -----. add .......      tail
///                           `-- m0 + m1 by whoever may         each lane adds the last ones up for
///                                                              its share of the parameters
///
/// A parameter's first gradient becomes the sum where nobody else holds its memory. Sparse
/// gradients stay sparse: their rows are joined by index, in the order of micro-batches, once.
class GradientSum {
 public:
  /// `lanes`: at most so many of the last micro-batches wait for the tail, and no micro-batch
  /// begins that is 2 * lanes ahead of the sum: so memory is bounded. On a GPU all sums are on
  /// `stream`, which waits for the lanes' streams.
  GradientSum(const Tensors& parameters, int micro_batches, int lanes,
              std::optional<c10::Stream> stream);

  /// What was summed up before, by parameter: the sums go on from a copy of it. Before all others.
  void go_on_from(const Tensors& sums);

  /// The next micro-batch to run; none: all have begun. Waits while too many are ahead of the sum.
  std::optional<int> next();

  /// By parameter; undefined: none. From the thread, and its stream, that made them.
  void add(int micro_batch, Tensors gradients);

  /// Adds up what is left when all micro-batches are in, for which it waits. Each caller takes
  /// parameters that no other has taken; at least one lane must call.
  void add_tail();

  /// Wakes who waits; a lane failed.
  void abort();

  /// By parameter, after the tail. Undefined where no micro-batch had one.
  Tensors take();

 private:
  struct Arrived {
    Tensors gradients;
    std::vector<c10::Event> made;  // on a GPU: one
  };

  void fold(Arrived* arrived);
  void add_one(std::size_t parameter, torch::Tensor gradient);
  void wait_for(const Arrived& arrived) const;
  void join(std::size_t parameter);
  void check_running() const;

  Tensors parameters_;
  int micro_batches_;
  int lanes_;
  std::optional<c10::Stream> stream_;
  Tensors sums_;                                // dense ones, by parameter
  std::vector<Tensors> sparse_;                 // by parameter: in order
  std::atomic<std::size_t> next_parameter_{0};  // of the tail

  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0;
  int folded_ = 0;   // micro-batches that are in the sums
  int arrived_ = 0;  // all that came
  bool folding_ = false;
  bool aborted_ = false;
  std::map<int, Arrived> waiting_;
};

}  // namespace pipewright
