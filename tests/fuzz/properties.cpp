#include "tests/fuzz/properties.h"

#include <algorithm>
#include <cmath>

#include "pipewright/base/error.h"
#include "pipewright/ir/validate.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/sim/simulate.h"

namespace pipewright::fuzz {
namespace {

// Larger ones only cost time: what breaks on them breaks on small ones.
constexpr std::size_t kMostInstructions = 10'000;

Simulation simulate_unit(const Program& program) {
  UniformShare share;
  share.activation_bytes = 8;
  share.boundary_bytes = 2;
  share.weight_bytes = 4;
  StepCosts costs;
  costs.stages = uniform_stages(share, program.placement.size(), 1);
  return simulate(program, costs);
}

void check_asynchronous(const Program& program, const AsynchronousFigures& figures) {
  require(std::isfinite(figures.steady.step_time()) && figures.steady.step_time() >= 0,
          "the steady state takes no time");
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    require(figures.versions[rank] >= 1, "a rank holds no version of its weights");
    require(figures.version_bytes[rank] == 4.0 * (figures.versions[rank] - 1),
            "versions and their bytes do not agree");
    require(figures.delay[rank] >= 0, "a gradient is early");
  }
}

void check_simulation(const Program& program, const Simulation& simulation) {
  const StepTimes& times = simulation.times;
  if (program.num_compute_instructions() == 0) return;  // nothing was left to do
  require(std::isfinite(times.step_time()) && times.step_time() > 0, "the step time is no time");
  require(times.bubble_fraction() >= 0 && times.bubble_fraction() < 1, "the bubble is no fraction");
  std::size_t num_spans = 0;
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    double free_at = 0;
    for (const Span& span : simulation.timeline.ranks[rank]) {
      require(span.start >= free_at && span.end >= span.start, "spans of a rank overlap");
      free_at = span.end;
    }
    num_spans += simulation.timeline.ranks[rank].size();
    const auto& memory = simulation.timeline.memory[rank];
    const bool whole = !program.is_asynchronous();  // else versions may be kept, work be left
    require(!whole || memory.empty() || memory.back().bytes == 0,
            "a rank holds bytes after the step");
  }
  if (simulation.asynchronous) check_asynchronous(program, *simulation.asynchronous);
  const auto is_message = [](Instruction i) { return is_send(i.kind()) || is_recv(i.kind()); };
  std::size_t num_messages = 0;
  for (const auto& list : program.ranks) {
    num_messages += static_cast<std::size_t>(std::count_if(list.begin(), list.end(), is_message));
  }
  require(num_spans + num_messages == program.num_instructions(), "an instruction has no span");
}

}  // namespace

void require(bool holds, const char* what) {
  if (!holds) throw Broken(what);
}

bool is_valid(const Program& program) {
  try {
    validate(program);
    return true;
  } catch (const ScheduleError&) {
    return false;
  }
}

void check_program(const Program& program) {
  if (!is_valid(program) || program.num_instructions() > kMostInstructions) return;
  const Simulation simulation = simulate_unit(program);
  check_simulation(program, simulation);
  if (program.is_lowered()) return;
  const Program lowered = lower_sends(program);
  validate(lowered);
  require(parse_program(to_text(lowered)) == lowered, "a lowered program reads back as another");
  const Simulation of_lowered = simulate_unit(lowered);
  check_simulation(lowered, of_lowered);
  require(of_lowered.step_time() == simulation.step_time(),
          "sends over links that cost nothing change the step time");
}

}  // namespace pipewright::fuzz
