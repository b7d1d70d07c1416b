#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pipewright/exec/stage.h"
#include "pipewright/torch/stream.h"
#include "pipewright/transport/transport.h"

namespace pipewright {

/// Which layers each stage has and which rank runs it: the same on every rank.
struct StageLayout {
  std::vector<std::size_t> first_layer;  // by stage, and one past the end
  std::vector<int> placement;            // the rank of each stage
  std::vector<torch::Device> devices;    // of each stage

  int num_stages() const { return static_cast<int>(placement.size()); }
  int stage_of(std::size_t layer) const;
  int rank_of(int stage) const { return placement[static_cast<std::size_t>(stage)]; }
  torch::Device device_of(int stage) const { return devices[static_cast<std::size_t>(stage)]; }
};

/// A skip: which layer stashes it and which one pops it.
struct Skip {
  std::size_t from_layer = 0;
  std::size_t to_layer = 0;
};

/// What all stages of a run share; outlives them.
struct SharedModel {
  const Sequence* model = nullptr;
  StageLayout layout;
  Loss loss;
  std::map<std::string, int> skip_index;
  std::vector<Skip> skips;                          // by index
  std::vector<std::unique_ptr<TiedUse>> tied_uses;  // in layer order
  std::vector<char> gradient_flows;  // by layer: it, or a layer before it, has something to learn
};
SharedModel share_model(const Sequence& model, Loss loss, StageLayout layout);

/// One mini-batch, split.
struct StepInput {
  std::int64_t step = 0;
  std::uint64_t run_seed = 0;
  std::vector<Tensors> inputs;   // by micro-batch
  std::vector<Tensors> targets;  // by micro-batch; empty lists where no loss is wanted
  std::vector<double> weights;   // of the loss, by micro-batch, where they are known beforehand
  double weight = 1;             // gradients are divided by it as they are made
  double loss_scale = 1;         // and multiplied by this
  Precision precision = Precision::kFull;
  bool training = true;
  bool check_finite = false;
};

/// Where a stage runs: its rank's stream, and the slot that pays for its memory.
struct StagePlace {
  const DeviceStream* stream = nullptr;
  int memory_slot = -1;
};

/// Runs one stage's instructions. One thread at a time.
class StageRunner {
 public:
  StageRunner(const SharedModel& shared, int stage, Transport* transport, StagePlace place);

  /// `recomputed`: no graph is kept, as R comes before the backward.
  void forward(const StepInput& input, int micro_batch, bool recomputed, bool forward_only);
  void recompute(const StepInput& input, int micro_batch);
  void backward(int micro_batch, bool split);
  void backward_weight(int micro_batch);
  void send_forward(int micro_batch);
  void send_backward(int micro_batch);

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
  void clear_results();

  /// How long receives have waited since the last call, in seconds: time that was not the stage's
  /// own.
  double take_waited() { return std::exchange(waited_, 0.0); }

  /// On a GPU: an event to be recorded when the first receive of the next instruction is there.
  void set_begin(c10::Event* begin) { begin_ = begin; }

 private:
  /// A micro-batch at this stage, between forward and backward.
  struct Run {
    Message input;
    std::map<std::string, Message> skips;  // popped from other stages
    std::vector<SegmentRun> segments;
    torch::Tensor loss_gradient;  // of the last stage
  };

  Message receive(const MessageKey& key);
  bool is_last() const { return stage_ + 1 == shared_.layout.num_stages(); }
  ForwardContext context(const StepInput& input, int micro_batch) const;
  Message take_input(const StepInput& input, int micro_batch);
  /// Runs all segments and keeps their graphs' ends in `run`, but for the last one's, which it
  /// returns.
  SegmentOutputs run_segments(const ForwardContext& context, Run* run, bool send_stashes,
                              int micro_batch);
  void finish_forward(const StepInput& input, const ForwardContext& context, Run* run,
                      SegmentOutputs made, bool forward_only);
  torch::Tensor scaled_loss(const StepInput& input, int micro_batch, const Tensors& outputs);
  SegmentRun leaves(const Message& input) const;
  Message popped(Run* run, std::map<std::string, Message>* local, const std::string& name,
                 int micro_batch);
  void stash(std::map<std::string, Message>* local, const std::string& name,
             const torch::Tensor& tensor, std::size_t last_layer, bool keep_graph, bool send,
             int micro_batch);
  Message boundary(const Tensors& tensors, std::size_t last_layer, bool has_graph) const;

  const SharedModel& shared_;
  int stage_;
  Transport* transport_;
  StagePlace place_;
  c10::Event* begin_ = nullptr;
  std::vector<Segment> segments_;
  std::vector<std::size_t> segment_end_;  // one past the last layer of each
  std::unordered_map<int, Run> runs_;     // by micro-batch
  std::map<int, Message> outgoing_;       // outputs that wait for their SEND
  std::map<int, Message> outgoing_gradients_;
  std::map<int, LossValue> losses_;
  double waited_ = 0;
  std::map<int, Tensors> outputs_;
};

}  // namespace pipewright
