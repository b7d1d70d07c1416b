#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/cost/stage_cost.h"

namespace pipewright {

/// What one layer costs for one micro-batch. Times in seconds.
struct LayerCost {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double backward_input_seconds =
      0;  // the halves of a split backward; together they may take longer
  double backward_weight_seconds = 0;
  double step_seconds = 0;  // the optimizer, once a step

  std::int64_t output_bytes = 0;
  std::int64_t saved_bytes = 0;        // kept for the backward, the output among them
  std::int64_t weight_half_bytes = 0;  // of those, what the weight half still needs
  std::int64_t idle_bytes = 0;         // of the output, what no backward needs
  std::int64_t gone_bytes = 0;         // of the output, what the next layer's backward alone needs
  std::int64_t skip_bytes = 0;         // of skips it stashes or pops: held whatever is run again
  std::int64_t forward_temp_bytes = 0;
  std::int64_t backward_temp_bytes = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t copy_bytes = 0;  // of its weights in 16 bits, from a step's first forward on

  /// What it takes whatever micro-batches there are.
  std::int64_t static_bytes() const {
    return parameter_bytes + gradient_bytes + optimizer_bytes + copy_bytes;
  }

  friend bool operator==(const LayerCost&, const LayerCost&) = default;
};

/// A model's costs, layer by layer, as measured once and kept in a file.
struct Profile {
  std::string model;
  std::string machine;  // what it was taken on, for people
  int micro_batch_size = 1;
  std::int64_t input_bytes = 0;  // of one micro-batch
  std::int64_t loss_bytes = 0;   // of a micro-batch's loss, which stays to the end of the step
  double host_bandwidth = 0;     // bytes a second between GPU and host, one way; 0: not measured
  std::vector<LayerCost> layers;

  friend bool operator==(const Profile&, const Profile&) = default;
};

/// The file's text. `backward_seconds` may be left out of a layer for twice its forward, the halves
/// for half of the backward each, and every byte count for 0. Throws InvalidArgument(`where`)
/// naming the member.
Profile parse_profile(std::string_view json, std::string_view where);
Profile load_profile(const std::string& path);

/// The text that parse_profile reads back to an equal Profile.
std::string to_json(const Profile& profile);

/// The costs of stages made of the profile's layers, `sizes` layers each. Recompute costs a
/// forward; a recomputed micro-batch keeps the stage's input.
std::vector<StageCost> stage_costs(const Profile& profile, const std::vector<int>& sizes);

}  // namespace pipewright
