#include "pipewright/run/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/json.h"

namespace pipewright {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMost = std::int64_t{1} << 60;

/// JSON has finite numbers only.
ordered_json number_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

double parse_number(const nlohmann::json& value, std::string_view where, std::string_view name) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  throw InvalidArgument(where,
                        fmt::format("{} is {}, not a number", name, value.dump().substr(0, 40)));
}

std::string line_of(const ordered_json& object) {
  return object.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

/// A line and where it stands.
struct Line {
  nlohmann::json root;
  std::string where;

  JsonObject object() const { return {root, where, "line"}; }
  double number(const char* name) const {
    if (!root.contains(name)) throw InvalidArgument(where, fmt::format("line.{} is missing", name));
    return parse_number(root.at(name), where, name);
  }
};

StepMetrics parse_step(const Line& line) {
  const JsonObject object = line.object();
  object.refuse_unknown({"step", "time", "loss", "lr", "samples_per_second", "seconds", "bubble",
                         "auc", "gradient_norm", "loss_scale", "skipped", "peak_bytes",
                         "stage_peak_bytes"});
  StepMetrics metrics;
  metrics.step = object.integer("step", 0, kMost);
  metrics.unix_time = object.non_negative("time");
  metrics.loss = line.number("loss");
  metrics.learning_rate = line.number("lr");
  metrics.samples_per_second = object.non_negative("samples_per_second");
  metrics.seconds = object.non_negative("seconds");
  metrics.bubble = line.number("bubble");
  if (object.has("gradient_norm")) metrics.gradient_norm = line.number("gradient_norm");
  if (object.has("auc")) metrics.auc = line.number("auc");
  metrics.loss_scale = object.non_negative_or("loss_scale", 1);
  if (object.has("skipped")) {
    if (!line.root.at("skipped").is_boolean())
      throw InvalidArgument(line.where, "line.skipped is neither true nor false");
    metrics.skipped = line.root.at("skipped").get<bool>();
  }
  if (object.has("peak_bytes")) metrics.peak_bytes = object.integers("peak_bytes", 0, kMost);
  if (object.has("stage_peak_bytes"))
    metrics.stage_peak_bytes = object.integers("stage_peak_bytes", 0, kMost);
  return metrics;
}

ValidationMetrics parse_validation(const Line& line) {
  const JsonObject object = line.object();
  object.refuse_unknown({"step", "time", "validation"});
  ValidationMetrics metrics;
  metrics.step = object.integer("step", 0, kMost);
  metrics.unix_time = object.non_negative("time");
  const nlohmann::json& values = line.root.at("validation");
  const JsonObject checked(values, line.where, "line.validation");
  for (const auto& [name, value] : values.items())
    metrics.values[name] = parse_number(value, line.where, name);
  return metrics;
}

/// Calls `visit(line with its end, parsed)` for the whole lines; returns the bytes of a cut one.
template <typename Visit>
std::int64_t for_each_line(std::string_view text, const std::string& path, Visit visit) {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    const std::string where = fmt::format("{} line {}", path, number);
    visit(text.substr(0, end + 1), Line{parse_json(text.substr(0, end), where), where});
    text.remove_prefix(end + 1);
  }
  return static_cast<std::int64_t>(text.size());
}

}  // namespace

std::string to_json_line(const StepMetrics& metrics) {
  ordered_json out = {{"step", metrics.step},
                      {"time", metrics.unix_time},
                      {"loss", number_json(metrics.loss)},
                      {"lr", number_json(metrics.learning_rate)},
                      {"samples_per_second", metrics.samples_per_second},
                      {"seconds", metrics.seconds},
                      {"bubble", number_json(metrics.bubble)}};
  if (metrics.gradient_norm) out["gradient_norm"] = number_json(*metrics.gradient_norm);
  if (metrics.auc) out["auc"] = number_json(*metrics.auc);
  out["loss_scale"] = metrics.loss_scale;
  out["skipped"] = metrics.skipped;
  if (!metrics.peak_bytes.empty()) out["peak_bytes"] = metrics.peak_bytes;
  if (!metrics.stage_peak_bytes.empty()) out["stage_peak_bytes"] = metrics.stage_peak_bytes;
  return line_of(out);
}

std::string to_json_line(const ValidationMetrics& metrics) {
  auto values = ordered_json::object();
  for (const auto& [name, value] : metrics.values) values[name] = number_json(value);
  return line_of(
      {{"step", metrics.step}, {"time", metrics.unix_time}, {"validation", std::move(values)}});
}

Metrics parse_metrics(std::string_view text, const std::string& path) {
  Metrics metrics;
  std::int64_t before = -1;
  metrics.cut_bytes = for_each_line(text, path, [&](std::string_view, const Line& line) {
    const JsonObject object = line.object();
    const bool is_validation = object.has("validation");
    const std::int64_t step = object.integer("step", 0, kMost);
    // A validation stands after the step it follows, and there may be several.
    if (step < before || (step == before && !is_validation)) {
      throw InvalidArgument(line.where, fmt::format("step {} stands after step {}; two runs wrote "
                                                    "this file, or it was edited",
                                                    step, before));
    }
    before = step;
    if (is_validation) {
      metrics.validations.push_back(parse_validation(line));
    } else {
      metrics.steps.push_back(parse_step(line));
    }
  });
  return metrics;
}

MetricsUpTo metrics_up_to(std::string_view text, const std::string& path, std::int64_t step) {
  MetricsUpTo kept;
  kept.cut_bytes = for_each_line(text, path, [&](std::string_view whole, const Line& line) {
    if (line.object().integer("step", 0, kMost) <= step) {
      kept.text += whole;
    } else if (!line.root.contains("validation")) {
      ++kept.dropped_steps;
    }
  });
  return kept;
}

}  // namespace pipewright
