#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/run/advice.h"
#include "pipewright/run/record.h"
#include "pipewright/trace/breakdown.h"

namespace pipewright {

/// A validation metric over the run.
struct ValidationSummary {
  double last = 0;
  double best = 0;  // the least of a loss, an error or a perplexity, of others the greatest
  std::int64_t best_step = 0;
};

/// The figures on top. Those of steps are medians, which a slow first step does not move.
struct Headline {
  std::string state;  // finished, stopped, failed, killed, running, empty
  std::int64_t steps = 0;
  std::optional<double> first_loss;
  std::optional<double> final_loss;  // mean of the last steps, about a twentieth of them
  std::map<std::string, ValidationSummary> validation;
  double samples_per_second = 0;
  double step_seconds = 0;
  double bubble_fraction = 0;
  std::optional<double> predicted_step_seconds;
  std::optional<double> predicted_bubble_fraction;
  std::vector<std::int64_t> peak_bytes;            // by rank, the most of any step
  std::vector<std::int64_t> stage_peak_bytes;      // by stage
  std::vector<std::int64_t> predicted_peak_bytes;  // by rank
  std::int64_t memory_bytes = 0;                   // a rank's budget; 0: none
  std::int64_t skipped_steps = 0;
  double training_seconds = 0;  // of all sessions
};

/// A rank's share of one step, in seconds.
struct RankReport {
  std::vector<int> stages;
  double compute = 0;
  double recompute = 0;
  double update = 0;
  double communication = 0;
  double idle = 0;
};

struct StageReport {
  int rank = 0;
  std::string layers;  // "embed", "block0 to block3": empty where they are not known
  int num_layers = 0;
  StageCost cost;  // measured means
};

/// All that there is to say about a run.
struct RunReport {
  RunRecord run;
  Headline headline;
  std::optional<Breakdown> measured;   // of the measured step
  std::optional<Breakdown> predicted;  // of the same step as planned
  std::vector<RankReport> ranks;
  std::vector<StageReport> stages;
  std::vector<Timeline> timelines;  // measured, then what was predicted or simulated
  Advice advice;
};

RunReport make_report(RunRecord run);

/// True where less is better: loss, error, perplexity.
bool less_is_better(const std::string& metric);

/// One JSON object with the report's facts: what `pipewright report --json` prints and the page
/// shows.
std::string to_json(const RunReport& report);

/// For a terminal of that width: figures, breakdown, advice.
std::string to_text(const RunReport& report, int width);

/// One self-contained page: no network, light and dark, to be read without a mouse.
std::string to_html(const RunReport& report);

}  // namespace pipewright
