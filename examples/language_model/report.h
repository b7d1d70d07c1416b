#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipewright/cost/stage_cost.h"
#include "pipewright/ir/program.h"
#include "pipewright/trace/timeline.h"

/// Idle share of the ranks' time from the first forward to the last backward. The update is left
/// out, as the schedules' formulas do: before it, the ranks wait for each other's gradient norms.
double pipeline_bubble(pipewright::Timeline timeline);

/// Mean times of the instructions by stage, over all the steps that were added.
class MeasuredCosts {
 public:
  explicit MeasuredCosts(int num_stages) : num_stages_(static_cast<std::size_t>(num_stages)) {}

  void add(const pipewright::Timeline& timeline);
  int num_steps() const { return num_steps_; }
  double step_seconds() const { return step_seconds_ / num_steps_; }
  double bubble() const { return bubble_ / num_steps_; }
  pipewright::StepCosts costs() const;

 private:
  std::size_t num_stages_;
  pipewright::Timeline all_;  // the spans of all steps
  double step_seconds_ = 0;
  double bubble_ = 0;
  int num_steps_ = 0;
};

/// What is known after a training.
struct Summary {
  pipewright::Program program;  // that the steps ran, with its STEPs
  MeasuredCosts measured{0};
  std::vector<std::string> layers;       // by stage, in words
  std::vector<std::int64_t> peak_bytes;  // by rank
  double samples_per_second = 0;
  double tokens_per_second = 0;
};

void print_summary(const Summary& summary);

/// A step as the simulator predicts it from the step's own mean times by stage, and as it was.
void write_page(const std::string& path, const pipewright::Program& program,
                const pipewright::Timeline& step);
