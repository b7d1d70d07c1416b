#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "pipewright/base/error.h"
#include "pipewright/run/report.h"
#include "pipewright/run/report_json.h"
#include "pipewright/trace/html.h"
#include "pipewright/trace/palette.h"

namespace pipewright {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kPage =
#include "pipewright/run/report_html.inc"
    ;
constexpr std::string_view kStyle =
#include "pipewright/run/report_css.inc"
    ;
constexpr std::string_view kCharts =
#include "pipewright/run/report_charts_js.inc"
    ;
constexpr std::string_view kParts =
#include "pipewright/run/report_parts_js.inc"
    ;

/// More points than this are not told apart on a screen.
constexpr std::size_t kMostPoints = 800;

ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

/// One line of a chart. Long runs are drawn by buckets of steps: their mean, least and most.
struct Column {
  std::string_view name;
  std::function<double(const StepMetrics&)> value;
};

double gradient_norm(const StepMetrics& step) {
  return step.gradient_norm.value_or(std::numeric_limits<double>::quiet_NaN());
}

/// {mean, low, high}, nulls where a bucket has no finite value.
ordered_json column_json(const std::vector<StepMetrics>& steps, std::size_t bucket,
                         const Column& column) {
  ordered_json out = {{"mean", ordered_json::array()},
                      {"low", ordered_json::array()},
                      {"high", ordered_json::array()}};
  for (std::size_t first = 0; first < steps.size(); first += bucket) {
    double sum = 0;
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    int count = 0;
    for (std::size_t i = first; i < std::min(first + bucket, steps.size()); ++i) {
      const double value = column.value(steps[i]);
      if (!std::isfinite(value)) continue;
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
      ++count;
    }
    out["mean"].push_back(count > 0 ? number(sum / count) : ordered_json(nullptr));
    out["low"].push_back(count > 0 ? number(low) : ordered_json(nullptr));
    out["high"].push_back(count > 0 ? number(high) : ordered_json(nullptr));
  }
  return out;
}

ordered_json series_json(const std::vector<StepMetrics>& steps) {
  const std::size_t bucket =
      std::max<std::size_t>(1, (steps.size() + kMostPoints - 1) / kMostPoints);
  ordered_json out = {{"steps_a_point", bucket}, {"step", ordered_json::array()}};
  for (std::size_t first = 0; first < steps.size(); first += bucket)
    out["step"].push_back(steps[std::min(first + bucket, steps.size()) - 1].step);
  const std::array<Column, 6> columns = {{
      {"loss", [](const StepMetrics& s) { return s.loss; }},
      {"samples_per_second", [](const StepMetrics& s) { return s.samples_per_second; }},
      {"bubble", [](const StepMetrics& s) { return s.bubble; }},
      {"learning_rate", [](const StepMetrics& s) { return s.learning_rate; }},
      {"gradient_norm", gradient_norm},
      {"loss_scale", [](const StepMetrics& s) { return s.loss_scale; }},
  }};
  for (const Column& column : columns)
    out[std::string(column.name)] = column_json(steps, bucket, column);
  return out;
}

ordered_json validation_json(const std::vector<ValidationMetrics>& validations) {
  auto out = ordered_json::object();
  for (const ValidationMetrics& one : validations) {
    for (const auto& [name, value] : one.values) {
      if (!out.contains(name))
        out[name] = {{"step", ordered_json::array()}, {"value", ordered_json::array()}};
      out[name]["step"].push_back(one.step);
      out[name]["value"].push_back(number(value));
    }
  }
  return out;
}

ordered_json parts_json() {
  auto out = ordered_json::array();
  for (std::size_t i = 0; i < kBreakdownParts.size(); ++i)
    out.push_back({{"name", kBreakdownParts[i].name}, {"colour", hex(part_colour(i))}});
  return out;
}

std::string data_json(const RunReport& report) {
  const ordered_json root = {
      {"facts", report_json(report)},
      {"series", series_json(report.run.metrics.steps)},
      {"validation", validation_json(report.run.metrics.validations)},
      {"parts", parts_json()},
      {"config", report.run.config},
      {"timeline", report.timelines.empty()
                       ? ""
                       : to_html(report.timelines, "One step of " + report.run.facts.name)}};
  return root.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// JSON as it may stand in a <script>: '<' occurs in its strings alone.
std::string in_script(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

/// Replaces the one `placeholder`, which stands after `from`; what was put in is not looked at.
std::size_t fill(std::string* page, std::string_view placeholder, std::string_view text,
                 std::size_t from) {
  const std::size_t at = page->find(placeholder, from);
  internal_check(at != std::string::npos, "report.html lacks one of its places");
  page->replace(at, placeholder.size(), text);
  return at + text.size();
}

}  // namespace

std::string to_html(const RunReport& report) {
  std::string page(kPage);
  std::size_t at = fill(&page, "PIPEWRIGHT_STYLE", kStyle, 0);
  at = fill(&page, "PIPEWRIGHT_DATA", in_script(data_json(report)), at);
  fill(&page, "PIPEWRIGHT_SCRIPT", fmt::format("{}\n{}", kCharts, kParts), at);
  return page;
}

}  // namespace pipewright
