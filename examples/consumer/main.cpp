// What does 1F1B cost with 4 ranks and 8 micro-batches? Prints the bubble and draws the step.
#include <cstdio>
#include <exception>

#include "pipewright/ir/validate.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"
#include "pipewright/trace/text.h"

int main() try {
  // A schedule is a program: for every rank, the list of instructions it runs (see to_text()).
  const pipewright::Program compute =
      pipewright::make_schedule({.name = "1f1b", .ranks = 4, .micro_batches = 8});

  // Lowering adds the sends and receives between ranks. validate() throws if the program cannot
  // run: schedules of pipewright's own always can, but try it on one that you wrote yourself.
  const pipewright::Program program = pipewright::lower_sends(compute);
  pipewright::validate(program);

  // What a micro-batch costs on each stage, in any unit of time, and what the links cost.
  pipewright::StepCosts costs;
  costs.stages = pipewright::uniform_stages({.forward = 1, .backward = 2}, 4, 1);
  costs.link = {.latency = 0, .time = 0};

  const pipewright::Simulation step = pipewright::simulate(program, costs);
  std::printf("bubble: %.1f %% of a step of %g\n\n", 100 * step.times.bubble_fraction(),
              step.step_time());
  std::printf("%s", pipewright::draw_text(step.timeline).c_str());
} catch (const std::exception& error) {
  // Every error of pipewright's is a pipewright::Error and says where, what, and what to do.
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
