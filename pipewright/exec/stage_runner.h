#pragma once

#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pipewright/exec/shared_model.h"
#include "pipewright/nn/weight_copies.h"
#include "pipewright/torch/stream.h"
#include "pipewright/transport/device_copy.h"

namespace pipewright {

/// One mini-batch, split.
struct StepInput {
  std::int64_t step = 0;
  std::uint64_t run_seed = 0;
  int first_micro_batch = 0;     // of this replica's, counted over all
  int first_number = 0;          // of its first micro-batch, among those under way
  std::vector<Tensors> inputs;   // by micro-batch
  std::vector<Tensors> targets;  // by micro-batch; empty lists where no loss is wanted
  std::vector<double> weights;   // of the loss, by micro-batch, where they are known beforehand
  double weight = 1;             // gradients are divided by it as they are made
  double loss_scale = 1;         // and multiplied by this
  Precision precision = Precision::kFull;
  bool training = true;
  bool check_finite = false;

  /// Where a micro-batch stands in the lists, by its number.
  std::size_t index(int micro_batch) const {
    return static_cast<std::size_t>(micro_batch - first_number);
  }
};

/// Where a stage runs: its rank's stream, and the slot that pays for its memory.
struct StagePlace {
  const DeviceStream* stream = nullptr;
  int memory_slot = -1;
  /// The slots of all stages of this process, where they are known: what is sent is from then on
  /// the receiver's.
  const std::vector<int>* all_slots = nullptr;
};

/// Runs one stage's instructions. One thread at a time. Micro-batches go by numbers that no other
/// one under way has.
class StageRunner {
 public:
  StageRunner(const SharedModel& shared, int stage, Transport* transport, StagePlace place);

  /// `recomputed`: as SharedModel::recompute says; R comes before the backward.
  void forward(const StepInput& input, int micro_batch, bool recomputed, bool forward_only);
  void recompute(const StepInput& input, int micro_batch);
  void backward(const StepInput& input, int micro_batch, bool split);
  void backward_weight(int micro_batch);
  /// What the next forward, or backward, of the micro-batch takes from other ranks may come now.
  void expect_forward(int micro_batch);
  void expect_backward(int micro_batch);
  void send_forward(int micro_batch);
  void send_backward(int micro_batch);

  /// What batch norms have collected of the mini-batch, for the other replicas, and theirs.
  std::vector<double> collected_norms() const;
  void add_norms(const std::vector<double>& collected);
  /// After the last backward of a mini-batch: batch norm's running statistics.
  void finish_mini_batch();
  /// Instead: they stay as they were before it.
  void abandon_norms();
  /// After a failure: forgets the step.
  void abandon();

  int stage() const { return stage_; }
  const StagePlace& place() const { return place_; }
  bool has_norms() const;
  /// Of the last stage: sums and weights by micro-batch, and outputs where they were asked for.
  const std::map<int, LossValue>& losses() const { return losses_; }
  std::map<int, Tensors>& outputs() { return outputs_; }
  /// Where somebody else has run the micro-batches.
  void set_losses(std::map<int, LossValue> losses) { losses_ = std::move(losses); }
  void clear_results();

  /// Before its weights change, and when nobody will use them for a while.
  void forget_copies() { copies_.forget(); }

  /// How long receives have waited since the last call, in seconds: time that was not the stage's
  /// own.
  double take_waited() { return std::exchange(waited_, 0.0); }

  /// On a GPU: an event to be recorded when the first receive of the next instruction is there.
  void set_begin(c10::Event* begin) { begin_ = begin; }

 private:
  /// Where a kept input is.
  enum class Parked : std::uint8_t { kHere, kOnHost, kComingBack };

  /// A micro-batch at this stage, between forward and backward.
  struct Run {
    const std::vector<Operation>* operations = nullptr;  // on segments, which count from 1
    std::size_t next = 0;                                // of the operations
    std::vector<Message> inputs;                         // by segment; empty: not there
    std::vector<Parked> parked;                          // by segment: where its input is
    std::vector<SegmentRun> segments;
    std::vector<char> been_through;                       // by segment: its forward has run
    std::map<std::string, Message> skips;                 // for segments to pop
    Tensors gradients;                                    // of the outputs of the next to go back
    std::map<std::string, torch::Tensor> skip_gradients;  // of what was stashed and popped here
    torch::Tensor loss_gradient;                          // of the last stage
  };

  Message receive(int from_stage, const MessageKey& key);
  void expect(int from_stage, const MessageKey& key);
  void send(const MessageKey& key, Message message);
  bool is_last() const { return stage_ + 1 == shared_.layout.num_stages(); }
  ForwardContext context(const StepInput& input, int micro_batch) const;
  Message take_input(const StepInput& input, int micro_batch);
  Run start(const StepInput& input, int micro_batch, const std::vector<Operation>& operations);
  void run_forward(const StepInput& input, int micro_batch, Run* run, bool forward_only);
  void run_backward(int micro_batch, Run* run, bool split);
  /// Sends a segment's outputs on their way, or makes the loss of them.
  void pass_on(const StepInput& input, const ForwardContext& context, std::size_t segment, Run* run,
               SegmentOutputs* made, bool forward_only);
  void park(Run* run, std::size_t segment);
  void start_back(Run* run, std::size_t segment);
  void bring_back(Run* run, std::size_t segment);
  void bring_next_back(Run* run);
  torch::Tensor scaled_loss(const StepInput& input, int micro_batch, const Tensors& outputs);
  SegmentRun leaves(const Message& input) const;
  const Message& popped(Run* run, const std::string& name, int micro_batch);
  void stash(Run* run, const std::string& name, Message message, int micro_batch);
  int stage_that_pops(const std::string& name) const;
  int stage_that_stashes(const std::string& name) const;
  Message boundary(const Tensors& tensors, std::size_t last_layer, bool has_graph) const;

  const SharedModel& shared_;
  int stage_;
  Transport* transport_;
  StagePlace place_;
  c10::Event* begin_ = nullptr;
  std::vector<Segment> segments_;
  std::vector<std::size_t> segment_end_;  // one past the last layer of each
  std::vector<Operation> recomputing_;    // on segments: of a micro-batch that is recomputed
  std::vector<Operation> saving_;         // of one that is not
  std::vector<Operation> passing_;        // of one that has no backward
  bool offload_ = false;                  // what those keep goes to the host
  DeviceCopy host_copies_;                // there and back
  WeightCopies copies_;                   // of its weights, in 16 bits
  std::deque<std::shared_ptr<c10::Event>> leaving_;  // copies to the host that may still run
  std::unordered_map<int, Run> runs_;                // by micro-batch
  std::map<int, Message> outgoing_;                  // outputs that wait for their SEND
  std::map<int, Message> outgoing_gradients_;
  std::map<int, LossValue> losses_;
  double waited_ = 0;
  std::map<int, Tensors> outputs_;
};

}  // namespace pipewright
