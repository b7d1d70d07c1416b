#include "report.h"

#include <fmt/format.h>

#include "pipewright/base/file.h"
#include "pipewright/base/units.h"
#include "pipewright/run/measured_costs.h"
#include "pipewright/sim/simulate.h"
#include "pipewright/trace/html.h"

using namespace pipewright;

namespace {

/// (K-1)/(M+K-1): what 1f1b and gpipe idle where all stages take the same time.
double formula(const Program& program) {
  const double others = program.num_ranks() - 1;
  return others / (program.num_micro_batches + others);
}

void print_stages(const Summary& summary) {
  const StepCosts costs = summary.measured.costs();
  fmt::print("{:<8}{:<6}{:<26}{:>10}{:>10}\n", "stage", "rank", "layers", "forward", "backward");
  for (std::size_t stage = 0; stage < costs.stages.size(); ++stage) {
    const StageCost& cost = costs.stages[stage];
    // One of them is 0: a schedule has whole backwards or halves.
    const double backward = cost.backward + cost.backward_input + cost.backward_weight;
    fmt::print("{:<8}{:<6}{:<26}{:>10}{:>10}\n", stage, summary.program.placement[stage],
               summary.layers[stage], format_seconds(cost.forward), format_seconds(backward));
  }
}

void print_peaks(const std::vector<std::int64_t>& peak_bytes) {
  fmt::print("{:<12}", "peak memory");
  for (std::size_t rank = 0; rank < peak_bytes.size(); ++rank) {
    fmt::print("{}rank {}: {}", rank == 0 ? "" : ", ", rank,
               format_bytes(static_cast<double>(peak_bytes[rank])));
  }
  fmt::print("\n");
}

}  // namespace

double pipeline_bubble(Timeline timeline) {
  for (auto& rank : timeline.ranks) {
    std::erase_if(rank, [](const Span& span) { return span.kind == Kind::kStep; });
  }
  return StepTimes(timeline).bubble_fraction();
}

void MeasuredCosts::add(const Timeline& timeline) {
  all_.ranks.insert(all_.ranks.end(), timeline.ranks.begin(), timeline.ranks.end());
  step_seconds_ += StepTimes(timeline).step_time();
  bubble_ += pipeline_bubble(timeline);
  ++num_steps_;
}

StepCosts MeasuredCosts::costs() const {
  StepCosts costs;
  costs.stages = measured_costs(all_, num_stages_);
  return costs;
}

void print_summary(const Summary& summary) {
  const Simulation predicted = simulate(summary.program, summary.measured.costs());
  print_stages(summary);
  fmt::print("\n{:<12}{:>10}{:>11}{:>15}\n", "", "measured", "predicted", "(K-1)/(M+K-1)");
  fmt::print("{:<12}{:>10}{:>11}\n", "step", format_seconds(summary.measured.step_seconds()),
             format_seconds(predicted.step_time()));
  fmt::print("{:<12}{:>9.1f}%{:>10.1f}%{:>14.1f}%\n", "bubble", 100 * summary.measured.bubble(),
             100 * pipeline_bubble(predicted.timeline), 100 * formula(summary.program));
  fmt::print("\n{:<12}{:.0f} samples/s, {:.0f} tokens/s\n", "speed", summary.samples_per_second,
             summary.tokens_per_second);
  print_peaks(summary.peak_bytes);
}

void write_page(const std::string& path, const Program& program, const Timeline& step) {
  MeasuredCosts measured(program.num_stages());
  measured.add(step);
  std::vector<Timeline> timelines = {simulate(program, measured.costs()).timeline, step};
  timelines[0].name = program.schedule + ", predicted from the mean times below";
  timelines[0].time_unit = step.time_unit;
  timelines[1].name = program.schedule + ", measured";
  write_file(path, to_html(timelines, "The last step of the training"), "--html");
}
