#pragma once

#include <memory>
#include <vector>

#include "pipewright/exec/gradient_sum.h"
#include "pipewright/exec/stage.h"
#include "pipewright/exec/stage_runner.h"
#include "pipewright/exec/workers.h"
#include "pipewright/memory/meter.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

struct LaneOptions {
  int lanes = 1;
  int threads = 1;                     // intra-op threads of a lane
  torch::Device device = torch::kCPU;  // of the model
  int memory_slot = MemoryMeter::kOutside;
};

/// What the lanes made of a mini-batch.
struct LaneResult {
  std::vector<LossValue> losses;  // by micro-batch, without their graphs
  Tensors gradients;              // by parameter, of sum / weight * loss_scale; may be undefined
  std::vector<std::vector<Span>> spans;  // by lane, in seconds from `start`; host's time on a GPU
};

/// Runs micro-batches of a whole model beside each other, forward and backward: on threads, on a
/// GPU each with a stream of its own. Parameters are shared and only read; each micro-batch's
/// gradients are its own until they are added, in the order of micro-batches.
class Lanes {
 public:
  /// The model outlives this object; its layers are made. Throws InvalidArgument for batch norms in
  /// it, whose statistics depend on the order of micro-batches.
  Lanes(const Sequence& model, Loss loss, const LaneOptions& options);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  /// The gradients of the parameters that need one. On a GPU they are there when the calling
  /// thread's stream is. `so_far`: gradients of earlier micro-batches, one a parameter, that these
  /// are added to in a copy; empty: none. Throws what the first lane that failed threw.
  LaneResult run(const StepInput& input, std::chrono::steady_clock::time_point start,
                 const Tensors& so_far = {});

  /// The same on the calling thread, one micro-batch after the other, each on its lane's stream: so
  /// that it can be captured as a CUDA graph. Random draws are not ours.
  LaneResult run_in_turn(const StepInput& input);

  /// Every parameter once, in layer order.
  const std::vector<std::pair<std::string, torch::Tensor>>& parameters() const {
    return parameters_;
  }
  int lanes() const { return options_.lanes; }

 private:
  struct Step;
  Step begin(const StepInput& input, std::chrono::steady_clock::time_point start) const;
  LaneResult finish(Step* step) const;
  void serve(Step* step, int lane);
  bool run_as_team(Step* step);
  void run_on_workers(Step* step);
  Tensors run_one(Step* step, int lane, int micro_batch);
  LossValue loss_of(const Step& step, int micro_batch, const Tensors& outputs) const;

  const Sequence& model_;
  Loss loss_;
  LaneOptions options_;
  Segment whole_;
  std::vector<std::pair<std::string, torch::Tensor>> parameters_;
  std::vector<DeviceStream> streams_;  // by lane
  std::unique_ptr<Workers> workers_;   // last: its threads use the others
};

}  // namespace pipewright
