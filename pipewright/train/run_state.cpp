#include "pipewright/train/run_state.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "pipewright/base/error.h"
#include "pipewright/base/json.h"

namespace pipewright {
namespace {

using nlohmann::json;

constexpr const char* kOwn = "pipewright";
constexpr const char* kCaller = "caller";
constexpr int kFormat = 1;
constexpr std::array kPrecisions = {"full", "bf16", "fp16"};
constexpr std::array kRecomputes = {"none",  "all",  "except_last", "every",
                                    "named", "sqrt", "budget",      "planned"};

json strategy_json(const Training& training) {
  const Strategy& s = training.strategy();
  return {{"ranks", s.ranks},
          {"micro_batches", s.micro_batches},
          {"schedule", s.schedule},
          {"chunks", s.chunks},
          {"sizes", training.sizes()},
          {"recompute", kRecomputes.at(static_cast<std::size_t>(s.recompute))},
          {"transport", s.transport},
          {"clip_norm", s.clip_norm},
          {"merge_steps", s.merge_steps},
          {"merge_average", s.merge_average},
          {"precision", kPrecisions.at(static_cast<std::size_t>(s.precision))},
          {"threads_per_rank", s.threads_per_rank}};
}

const json& own_part(const json& state, const std::string& path) {
  if (state.is_object() && state.contains(kOwn)) return state.at(kOwn);
  throw InvalidArgument("checkpoint",
                        fmt::format("'{}' is not the checkpoint of a trainer: its state has no "
                                    "member '{}'",
                                    path, kOwn));
}

}  // namespace

json state_of(const Training& training, const json& callers) {
  const RunPosition position = training.position();
  const LearningRate& rate = training.strategy().learning_rate;
  json own = {{"format", kFormat},
              {"steps", position.num_steps},
              {"updates", position.num_updates},
              {"merged", position.num_merged},
              {"replicas", position.replicas},
              {"seed", position.seed},
              {"learning_rate", rate ? rate(position.num_updates) : 1.0},
              {"strategy", strategy_json(training)}};
  if (position.scaler) {
    own["loss_scale"] = {{"scale", position.scaler->scale},
                         {"num_good", position.scaler->num_good},
                         {"num_bad", position.scaler->num_bad}};
  }
  return {{kOwn, std::move(own)}, {kCaller, callers}};
}

RunPosition parse_position(const json& state, const std::string& path) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  const json& own = own_part(state, path);
  const JsonObject object(own, "checkpoint", fmt::format("'{}', state.{}", path, kOwn));
  if (const auto format = object.integer("format", 1, kMost); format > kFormat) {
    throw InvalidArgument("checkpoint",
                          fmt::format("'{}' has format {}, this program reads {} and older; use a "
                                      "newer one",
                                      path, format, kFormat));
  }
  RunPosition position;
  position.num_steps = object.integer("steps", 0, kMost);
  position.num_updates = object.integer("updates", 0, kMost);
  position.num_merged =
      static_cast<int>(object.integer("merged", 0, std::numeric_limits<int>::max()));
  position.replicas =
      static_cast<int>(object.integer("replicas", 1, std::numeric_limits<int>::max()));
  if (!own.contains("seed") || !own["seed"].is_number_unsigned()) {
    throw InvalidArgument("checkpoint", fmt::format("'{}' has no seed", path));
  }
  position.seed = own["seed"].get<std::uint64_t>();
  if (object.has("loss_scale")) {
    const JsonObject scale(own["loss_scale"], "checkpoint", fmt::format("'{}', loss_scale", path));
    constexpr auto kMostInt = std::numeric_limits<int>::max();
    position.scaler = {scale.non_negative("scale"),
                       static_cast<int>(scale.integer("num_good", 0, kMostInt)),
                       static_cast<int>(scale.integer("num_bad", 0, kMostInt))};
  }
  return position;
}

std::vector<std::string> parse_state_types(const json& state, const std::string& path) {
  const JsonObject object(own_part(state, path), "checkpoint", fmt::format("'{}'", path));
  return object.strings("optimizer_states");
}

}  // namespace pipewright
