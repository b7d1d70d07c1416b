#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/run/files.h"

namespace pipewright {

/// What a training loop knows after a step; see StepResult of train/trainer.h.
struct StepMetrics {
  std::int64_t step = 0;  // steps done, this one among them: counts from 1
  double unix_time = 0;   // seconds since 1970
  double loss = 0;        // may be no finite number, as where a step was skipped
  double learning_rate = 0;
  double samples_per_second = 0;
  double seconds = 0;  // of the step
  double bubble = 0;   // idle share of the ranks' time
  std::optional<double> gradient_norm;
  std::optional<double> auc;  // of the step's samples: area under the ROC curve
  double loss_scale = 1;
  bool skipped = false;                        // no update, for a gradient overflowed
  std::vector<std::int64_t> peak_bytes;        // by rank; empty: not known
  std::vector<std::int64_t> stage_peak_bytes;  // by stage; empty: not known

  friend bool operator==(const StepMetrics&, const StepMetrics&) = default;
};

/// What was found when the model was tried on data kept apart.
struct ValidationMetrics {
  std::int64_t step = 0;  // steps done before it
  double unix_time = 0;
  std::map<std::string, double> values;  // "loss", "accuracy" ...

  friend bool operator==(const ValidationMetrics&, const ValidationMetrics&) = default;
};

/// metrics.jsonl: a JSON object a line. A line of a step has "loss"; one with "validation" is of
/// that. Numbers that are not finite are the strings "nan", "inf" and "-inf".
std::string to_json_line(const StepMetrics& metrics);  // with its line end
std::string to_json_line(const ValidationMetrics& metrics);

struct Metrics {
  std::vector<StepMetrics> steps;  // rising
  std::vector<ValidationMetrics> validations;
  std::int64_t cut_bytes = 0;  // of a last line without an end: its writer was killed; not counted
};

/// Throws InvalidArgument with the line for all that no writer of ours leaves behind: damaged lines
/// but the last, members that are missing or of the wrong type, steps that do not rise.
Metrics parse_metrics(std::string_view text, const std::string& path);

/// Of the text of a metrics.jsonl, the whole lines up to `step`.
struct MetricsUpTo {
  std::string text;
  std::int64_t dropped_steps = 0;  // lines of steps beyond it
  std::int64_t cut_bytes = 0;
};
MetricsUpTo metrics_up_to(std::string_view text, const std::string& path, std::int64_t step);

/// Adds lines to a metrics.jsonl. Throws StorageError where the disk refuses; then no part of the
/// line is in the file.
class MetricsWriter {
 public:
  explicit MetricsWriter(std::string path) : file_(std::move(path)) {}

  void write(const StepMetrics& metrics) { file_.write(to_json_line(metrics)); }
  void write(const ValidationMetrics& metrics) { file_.write(to_json_line(metrics)); }

 private:
  AppendFile file_;
};

}  // namespace pipewright
