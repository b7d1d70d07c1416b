#pragma once

#include <utility>
#include <vector>

#include "pipewright/ir/program.h"

namespace pipewright {

/// Writes one rank's list. Counts micro-batches itself: each call takes the next one of its stage
/// and kind, so that every kind goes up from 0. Micro-batches from `num_micro_batches` on are left
/// out, so that a pattern that needs more of them than there are can be written as it is: what
/// stays of a valid Program when a whole micro-batch is left out is valid.
class ListWriter {
 public:
  ListWriter(int num_stages, int num_micro_batches)
      : num_micro_batches_(num_micro_batches), next_(static_cast<std::size_t>(num_stages)) {}

  void forward(int stage) { add(Kind::kForward, stage, &Next::forward); }
  void backward(int stage) { add(Kind::kBackward, stage, &Next::backward); }
  void backward_input(int stage) { add(Kind::kBackwardInput, stage, &Next::backward); }
  void backward_weight(int stage) { add(Kind::kBackwardWeight, stage, &Next::weight); }

  int num_forwards(int stage) const { return next_[static_cast<std::size_t>(stage)].forward; }
  int num_backwards(int stage) const { return next_[static_cast<std::size_t>(stage)].backward; }
  int num_weights(int stage) const { return next_[static_cast<std::size_t>(stage)].weight; }

  void reserve(std::size_t size) { list_.reserve(size); }
  std::vector<Instruction> take() { return std::move(list_); }

 private:
  struct Next {
    int forward = 0;
    int backward = 0;
    int weight = 0;
  };

  void add(Kind kind, int stage, int Next::*member) {
    const int micro_batch = next_[static_cast<std::size_t>(stage)].*member;
    ++(next_[static_cast<std::size_t>(stage)].*member);
    if (micro_batch < num_micro_batches_)
      list_.emplace_back(kind, Stage{stage}, MicroBatch{micro_batch});
  }

  int num_micro_batches_;
  std::vector<Next> next_;
  std::vector<Instruction> list_;
};

}  // namespace pipewright
