#include "pipewright/run/log.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

/// Four spaces make Markdown show it as it is.
std::string as_code(const std::string& text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

}  // namespace

RunLog::RunLog(const RunFolder& folder, bool tensorboard, double now)
    : metrics_(folder.file(kMetricsFile)) {
  internal_check(!folder.facts().sessions.empty(), "a log of a run without a session");
  if (!tensorboard) return;
  const std::int64_t step = folder.facts().sessions.back().first_step;
  events_.emplace(folder.tensorboard(), step, now);
  const std::string config = folder.file(kConfigFile);
  if (is_there(config)) events_->text("config", step, as_code(read_run_file(config)), now);
}

void RunLog::step(const StepMetrics& metrics) {
  metrics_.write(metrics);
  if (!events_) return;
  const auto add = [&](std::string_view tag, double value) {
    events_->scalar(tag, metrics.step, value, metrics.unix_time);
  };
  add("train/loss", metrics.loss);
  add("train/learning_rate", metrics.learning_rate);
  if (metrics.gradient_norm) add("train/gradient_norm", *metrics.gradient_norm);
  add("train/loss_scale", metrics.loss_scale);
  add("train/skipped", metrics.skipped ? 1 : 0);
  add("speed/samples_per_second", metrics.samples_per_second);
  add("speed/step_seconds", metrics.seconds);
  add("speed/bubble", metrics.bubble);
  for (std::size_t rank = 0; rank < metrics.peak_bytes.size(); ++rank)
    add(fmt::format("memory/rank_{}_peak_bytes", rank),
        static_cast<double>(metrics.peak_bytes[rank]));
}

void RunLog::validation(const ValidationMetrics& metrics) {
  metrics_.write(metrics);
  if (!events_) return;
  for (const auto& [name, value] : metrics.values)
    events_->scalar("validation/" + name, metrics.step, value, metrics.unix_time);
}

}  // namespace pipewright
