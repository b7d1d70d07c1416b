#include "pipewright/cost/profile.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/base/json.h"

namespace pipewright {
namespace {

constexpr std::string_view kFormat = "pipewright-profile";
constexpr int kVersion = 1;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
constexpr double kMostSeconds = 1e9;  // no layer takes 30 years; sums of such times stay finite
constexpr std::int64_t kMostMicroBatchSize = std::int64_t{1} << 30;

struct ByteMember {
  std::string_view name;
  std::int64_t LayerCost::*member;
};
constexpr std::array<ByteMember, 12> kByteMembers = {{
    {"output_bytes", &LayerCost::output_bytes},
    {"saved_bytes", &LayerCost::saved_bytes},
    {"weight_half_bytes", &LayerCost::weight_half_bytes},
    {"idle_bytes", &LayerCost::idle_bytes},
    {"gone_bytes", &LayerCost::gone_bytes},
    {"skip_bytes", &LayerCost::skip_bytes},
    {"forward_temp_bytes", &LayerCost::forward_temp_bytes},
    {"backward_temp_bytes", &LayerCost::backward_temp_bytes},
    {"parameter_bytes", &LayerCost::parameter_bytes},
    {"gradient_bytes", &LayerCost::gradient_bytes},
    {"optimizer_bytes", &LayerCost::optimizer_bytes},
    {"copy_bytes", &LayerCost::copy_bytes},
}};

double seconds_or(const JsonObject& object, std::string_view name, double otherwise,
                  std::string_view where) {
  const double seconds = object.non_negative_or(name, otherwise);
  if (seconds <= kMostSeconds) return seconds;
  throw InvalidArgument(
      where, fmt::format("{} of {} seconds is more than {}", name, seconds, kMostSeconds));
}

LayerCost parse_layer(const nlohmann::json& value, std::string_view where, std::size_t index) {
  const JsonObject object(value, where, fmt::format("layers[{}]", index));
  object.refuse_unknown({"name", "forward_seconds", "backward_seconds", "backward_input_seconds",
                         "backward_weight_seconds", "step_seconds", "output_bytes", "saved_bytes",
                         "weight_half_bytes", "idle_bytes", "gone_bytes", "skip_bytes",
                         "forward_temp_bytes", "backward_temp_bytes", "parameter_bytes",
                         "gradient_bytes", "optimizer_bytes", "copy_bytes"});
  LayerCost layer;
  layer.name = object.string_or("name", fmt::format("layer{}", index));
  object.non_negative("forward_seconds");  // the one time that has no default
  const auto seconds = [&](std::string_view name, double otherwise) {
    return seconds_or(object, name, otherwise, where);
  };
  layer.forward_seconds = seconds("forward_seconds", 0);
  layer.backward_seconds = seconds("backward_seconds", 2 * layer.forward_seconds);
  layer.backward_input_seconds = seconds("backward_input_seconds", layer.backward_seconds / 2);
  layer.backward_weight_seconds = seconds("backward_weight_seconds", layer.backward_seconds / 2);
  layer.step_seconds = seconds("step_seconds", 0);
  for (const auto& [name, member] : kByteMembers)
    layer.*member = object.integer_or(name, 0, kMostBytes, 0);
  return layer;
}

}  // namespace

Profile parse_profile(std::string_view json, std::string_view where) {
  const nlohmann::json root = parse_json(json, where);
  const JsonObject object(root, where, "profile");
  object.refuse_unknown({"format", "version", "model", "machine", "micro_batch_size", "input_bytes",
                         "loss_bytes", "host_bandwidth", "layers"});
  if (object.string("format") != kFormat) {
    throw InvalidArgument(where, fmt::format("this is no profile: format is not '{}'", kFormat));
  }
  if (object.integer("version", 0, INT32_MAX) != kVersion) {
    throw InvalidArgument(where,
                          fmt::format("the profile is of version {}, this program reads version {}",
                                      object.integer("version", 0, INT32_MAX), kVersion));
  }
  Profile profile;
  profile.model = object.string_or("model", "");
  profile.machine = object.string_or("machine", "");
  profile.micro_batch_size =
      static_cast<int>(object.integer_or("micro_batch_size", 1, kMostMicroBatchSize, 1));
  profile.input_bytes = object.integer_or("input_bytes", 0, kMostBytes, 0);
  profile.loss_bytes = object.integer_or("loss_bytes", 0, kMostBytes, 0);
  profile.host_bandwidth = object.non_negative_or("host_bandwidth", 0);
  for (const auto& layer : object.array("layers")) {
    profile.layers.push_back(parse_layer(layer, where, profile.layers.size()));
  }
  if (profile.layers.empty()) throw InvalidArgument(where, "the profile has no layers");
  return profile;
}

Profile load_profile(const std::string& path) {
  return parse_profile(read_file(path, "profile"), fmt::format("profile {}", path));
}

std::string to_json(const Profile& profile) {
  nlohmann::ordered_json root = {{"format", kFormat},
                                 {"version", kVersion},
                                 {"model", profile.model},
                                 {"machine", profile.machine},
                                 {"micro_batch_size", profile.micro_batch_size},
                                 {"input_bytes", profile.input_bytes},
                                 {"loss_bytes", profile.loss_bytes},
                                 {"host_bandwidth", profile.host_bandwidth}};
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const LayerCost& layer : profile.layers) {
    nlohmann::ordered_json entry = {{"name", layer.name},
                                    {"forward_seconds", layer.forward_seconds},
                                    {"backward_seconds", layer.backward_seconds},
                                    {"backward_input_seconds", layer.backward_input_seconds},
                                    {"backward_weight_seconds", layer.backward_weight_seconds},
                                    {"step_seconds", layer.step_seconds}};
    for (const auto& [name, member] : kByteMembers) entry[std::string(name)] = layer.*member;
    layers.push_back(std::move(entry));
  }
  root["layers"] = std::move(layers);
  return root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::vector<StageCost> stage_costs(const Profile& profile, const std::vector<int>& sizes) {
  std::vector<StageCost> stages;
  std::size_t next = 0;
  for (const int size : sizes) {
    StageCost stage;
    const std::int64_t input =
        next == 0 ? profile.input_bytes : profile.layers[next - 1].output_bytes;
    stage.boundary_bytes = static_cast<double>(input);
    for (int i = 0; i < size; ++i) {
      internal_check(next < profile.layers.size(), "the stages have more layers than the profile");
      const LayerCost& layer = profile.layers[next++];
      stage.forward += layer.forward_seconds;
      stage.backward += layer.backward_seconds;
      stage.backward_input += layer.backward_input_seconds;
      stage.backward_weight += layer.backward_weight_seconds;
      stage.step += layer.step_seconds;
      stage.activation_bytes += static_cast<double>(layer.saved_bytes);
      stage.weight_half_bytes += static_cast<double>(layer.weight_half_bytes);
      stage.weight_bytes += static_cast<double>(layer.parameter_bytes);
    }
    stage.recompute = stage.forward;
    stages.push_back(stage);
  }
  internal_check(next == profile.layers.size(), "the stages have fewer layers than the profile");
  return stages;
}

}  // namespace pipewright
