#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pipewright/exec/stage.h"
#include "pipewright/nn/outline.h"
#include "pipewright/recompute/modes.h"

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

/// A use of a tied weight in another stage than the one that owns it, which is that of its first
/// use.
struct TiedRoute {
  int number = 0;         // of the use
  int owner = 0;          // stage
  int user = 0;           // stage
  bool has_value = true;  // new values go this way: by one use of a weight between two ranks
};

/// What all stages of a run share; outlives them.
struct SharedModel {
  const Sequence* model = nullptr;
  StageLayout layout;
  Loss loss;
  std::map<std::string, int> skip_index;
  std::vector<Skip> skips;                          // by index
  std::vector<std::unique_ptr<TiedUse>> tied_uses;  // in layer order
  std::vector<TiedRoute> tied_routes;
  std::vector<char> gradient_flows;  // by layer: it, or a layer before it, has something to learn
  /// By stage: what is done with its layers for a micro-batch that is recomputed. Layers count from
  /// 1 within the stage.
  std::vector<std::vector<Operation>> recompute;
  /// By stage: what those operations keep lies in the host's memory meanwhile. Empty: nowhere.
  std::vector<char> offload;
};
/// With everything run again before its backward, where a Program says R; `recompute` may be
/// changed before the stages are made.
/// The model's layers need to be there only as far as they run in this process; `outline` is of the
/// whole of it.
SharedModel share_model(const Sequence& model, const Outline& outline, Loss loss,
                        StageLayout layout);

}  // namespace pipewright
