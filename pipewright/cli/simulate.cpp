#include "pipewright/sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/base/units.h"
#include "pipewright/cli/commands.h"
#include "pipewright/cli/simulate_report.h"
#include "pipewright/cost/profile.h"
#include "pipewright/ir/csv.h"
#include "pipewright/ir/validate.h"
#include "pipewright/partition/partition.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright::cli {
namespace {

struct Options {
  std::string schedule;
  std::string ranks;
  std::string micro_batches;
  std::string chunks;
  std::string mini_batches;
  bool vertical_sync = false;
  std::string forward;
  std::string backward;
  std::string backward_input;
  std::string backward_weight;
  bool recompute = false;
  std::string activation_bytes;
  std::string boundary_bytes;
  std::string weight_bytes;
  std::string link_latency;
  std::string link_time;
  std::string from_csv;
  std::string profile;
  bool lowered = false;
  OutputOptions output;
};

/// Where the costs come from: the same share of the model on every rank, or a profile's layers.
struct CostSource {
  UniformShare share;
  LinkCost link;
  std::optional<Profile> profile;
};

int parse_count(const std::string& text, std::string_view name) {
  return static_cast<int>(parse_integer(text, name, 1, Instruction::kMaxMicroBatch));
}

double parse_time(const std::string& text, std::string_view name, double otherwise) {
  if (text.empty()) return otherwise;
  constexpr double kMost = 1e100;  // so that sums over a Program stay finite
  const double time = parse_non_negative(text, name);
  if (time > kMost) throw InvalidArgument(name, fmt::format("'{}' is more than {}", text, kMost));
  return time;
}

double parse_size(const std::string& text, std::string_view name) {
  return text.empty() ? 0 : static_cast<double>(parse_bytes(text, name));
}

void refuse_together(std::string_view one,
                     std::initializer_list<std::pair<std::string_view, bool>> others) {
  for (const auto& [name, given] : others) {
    if (given)
      throw InvalidArgument("simulate", fmt::format("{} and {} exclude each other", one, name));
  }
}

void check_combinations(const Options& o) {
  const bool halves = !o.backward_input.empty() || !o.backward_weight.empty();
  if (halves && (o.backward_input.empty() || o.backward_weight.empty())) {
    throw InvalidArgument("simulate",
                          "--backward-input and --backward-weight go together; give both");
  }
  if (halves) refuse_together("--backward-input", {{"--backward", !o.backward.empty()}});
  if (!o.from_csv.empty()) {
    refuse_together("--from-csv", {{"--schedule", !o.schedule.empty()},
                                   {"--ranks", !o.ranks.empty()},
                                   {"--micro-batches", !o.micro_batches.empty()},
                                   {"--chunks", !o.chunks.empty()},
                                   {"--mini-batches", !o.mini_batches.empty()},
                                   {"--vertical-sync", o.vertical_sync}});
  } else {
    for (const auto& [name, value] : {std::pair{"--schedule", &o.schedule},
                                      {"--ranks", &o.ranks},
                                      {"--micro-batches", &o.micro_batches}}) {
      if (value->empty()) throw InvalidArgument("simulate", fmt::format("{} is required", name));
    }
  }
  if (!o.profile.empty()) {
    refuse_together("--profile", {{"--forward", !o.forward.empty()},
                                  {"--backward", !o.backward.empty()},
                                  {"--backward-input", halves},
                                  {"--activation-bytes", !o.activation_bytes.empty()},
                                  {"--boundary-bytes", !o.boundary_bytes.empty()},
                                  {"--weight-bytes", !o.weight_bytes.empty()}});
  }
  if (o.schedule == "all") refuse_together("--schedule all", {{"--csv", !o.output.csv.empty()}});
  if (o.output.json) refuse_together("--json", {{"--text", o.output.text}});
}

CostSource parse_costs(const Options& o) {
  CostSource costs;
  UniformShare& share = costs.share;
  share.forward = parse_time(o.forward, "--forward", share.forward);
  share.backward = parse_time(o.backward, "--backward", share.backward);
  share.backward_input = parse_time(o.backward_input, "--backward-input", share.backward / 2);
  share.backward_weight = parse_time(o.backward_weight, "--backward-weight", share.backward / 2);
  if (!o.backward_input.empty()) share.backward = share.backward_input + share.backward_weight;
  share.activation_bytes = parse_size(o.activation_bytes, "--activation-bytes");
  share.boundary_bytes = parse_size(o.boundary_bytes, "--boundary-bytes");
  share.weight_bytes = parse_size(o.weight_bytes, "--weight-bytes");
  costs.link.latency = parse_time(o.link_latency, "--link-latency", 0);
  costs.link.time = parse_time(o.link_time, "--link-time", 0);
  if (!o.profile.empty()) costs.profile = load_profile(o.profile);
  return costs;
}

StepCosts costs_for(const Program& program, const CostSource& source) {
  const auto num_stages = program.placement.size();
  StepCosts costs;
  costs.link = source.link;
  if (!source.profile) {
    costs.stages =
        uniform_stages(source.share, num_stages, static_cast<std::size_t>(program.num_chunks()));
    return costs;
  }
  std::vector<double> layers;
  for (const LayerCost& layer : source.profile->layers) {
    layers.push_back(layer.forward_seconds + layer.backward_seconds);
  }
  costs.stages = stage_costs(*source.profile,
                             partition_by_bottleneck(layers, static_cast<int>(num_stages)).sizes);
  return costs;
}

SimulatedSchedule simulate_one(Program program, const ScheduleSpec& spec, const Options& options,
                               const CostSource& source) {
  if (options.recompute && !program.forward_only) {
    program = lower_recompute(program, RecomputePass::kAll);
  }
  Program lowered = program.is_lowered() ? program : lower_sends(program);
  validate(lowered, BackwardOrder::kAny);  // schedules of ours are in order; see the sweep tests
  SimulatedSchedule result;
  result.spec = spec;
  const bool draw = !options.output.json || options.output.writes_timelines();
  result.simulation = simulate(lowered, costs_for(lowered, source), {.record_timeline = draw});
  result.simulation.timeline.time_unit = source.profile ? "s" : "";
  result.program =
      options.lowered || program.is_lowered() ? std::move(lowered) : std::move(program);
  return result;
}

ScheduleSpec spec_of(const Options& options, const ScheduleInfo& info) {
  ScheduleSpec spec;
  spec.name = info.name;
  spec.ranks = parse_count(options.ranks, "--ranks");
  spec.micro_batches = parse_count(options.micro_batches, "--micro-batches");
  if (!options.chunks.empty()) spec.chunks = parse_count(options.chunks, "--chunks");
  if (!options.mini_batches.empty()) {
    spec.mini_batches = parse_count(options.mini_batches, "--mini-batches");
  }
  spec.vertical_sync = options.vertical_sync;
  return spec;
}

/// Of all schedules: each takes those of the sizes that it can have; the table shows what each one
/// ran with.
ScheduleSpec fitting_spec_of(const Options& options, const ScheduleInfo& info) {
  ScheduleSpec spec = spec_of(options, info);
  if (spec.chunks != 0) spec.chunks = std::clamp(spec.chunks, info.least_chunks, info.most_chunks);
  if (!info.asynchronous) spec.mini_batches = 0;
  if (!has_vertical_sync(info.name)) spec.vertical_sync = false;
  return spec;
}

/// Beside steps of one mini-batch, two are drawn of those that go on, though more were simulated.
void shorten_picture(SimulatedSchedule* schedule, const Options& options,
                     const CostSource& source) {
  Timeline& timeline = schedule->simulation.timeline;
  if (timeline.ranks.empty()) return;
  ScheduleSpec spec = schedule->spec;
  spec.mini_batches = 2 * spec.updates_every;
  timeline = simulate_one(make_schedule(spec), spec, options, source).simulation.timeline;
}

std::vector<SimulatedSchedule> simulate_all(const Options& options, const CostSource& source) {
  std::vector<SimulatedSchedule> results;
  for (const ScheduleInfo& info : all_schedules()) {
    const ScheduleSpec spec = filled_in(fitting_spec_of(options, info));
    results.push_back(simulate_one(make_schedule(spec), spec, options, source));
    if (info.asynchronous && options.mini_batches.empty())
      shorten_picture(&results.back(), options, source);
  }
  return results;
}

bool is_runnable(const Program& program) {
  try {
    validate(program);
  } catch (const ScheduleError&) {
    return false;
  }
  return true;
}

Program load_csv(const std::string& path) {
  CsvProgram csv = read_csv(read_file(path, "--from-csv"));
  if (!csv.remarks.empty()) fmt::print(stderr, "pipewright: [csv] {}\n", csv.remarks);
  validate(csv.program, BackwardOrder::kAny);
  if (!is_runnable(csv.program)) {
    fmt::print(
        stderr,
        "pipewright: [csv] a stage's backwards are not in increasing order: this can be drawn, but "
        "pipewright would not run it, as its gradients would add up in another order\n");
  }
  return std::move(csv.program);
}

void run(const Options& options) {
  check_combinations(options);
  const CostSource source = parse_costs(options);
  if (options.schedule == "all") {
    report_all(simulate_all(options, source), options.output);
    return;
  }
  if (options.from_csv.empty()) {
    const ScheduleSpec spec = filled_in(spec_of(options, find_schedule(options.schedule)));
    report_one(simulate_one(make_schedule(spec), spec, options, source), options.output);
    return;
  }
  Program program = load_csv(options.from_csv);
  ScheduleSpec spec;
  spec.micro_batches = program.num_micro_batches;
  report_one(simulate_one(std::move(program), spec, options, source), options.output);
}

void add_cost_options(CLI::App* command, Options* o) {
  command->add_option("--forward", o->forward, "Time of a rank's forward (default 1)");
  command->add_option("--backward", o->backward,
                      "Time of its backward (default 2); half each where it is split");
  command->add_option("--backward-input", o->backward_input, "Time of its input-gradient half");
  command->add_option("--backward-weight", o->backward_weight, "Time of its weight-gradient half");
  command->add_flag("--recompute", o->recompute,
                    "Drop activations after the forward and make them again");
  command->add_option(
      "--activation-bytes", o->activation_bytes,
      "What a micro-batch keeps on a rank between forward and backward, e.g. 512MiB");
  command->add_option("--boundary-bytes", o->boundary_bytes,
                      "What it keeps instead until it is recomputed: a stage's input");
  command->add_option("--weight-bytes", o->weight_bytes,
                      "Parameters of a rank: asynchronous schedules hold several versions of them");
  command->add_option("--link-latency", o->link_latency, "Time a message travels (default 0)");
  command->add_option("--link-time", o->link_time, "Time a message occupies its link (default 0)");
  command->add_option(
      "--profile", o->profile,
      "Costs of the layers from a profile file instead, split into stages by their bottleneck");
}

void add_output_options(CLI::App* command, Options* o) {
  command->add_flag("--json", o->output.json, "Print one JSON object and nothing else");
  command->add_flag("--text", o->output.text,
                    "Draw the timeline in the terminal (with all: every one)");
  command->add_option("--html", o->output.html, "Write the timeline as a page to zoom and hover");
  command->add_option("--svg", o->output.svg, "Write the timeline as a picture");
  command->add_option("--chrome", o->output.chrome, "Write it as a Chrome trace, for Perfetto");
  command->add_option("--csv", o->output.csv,
                      "Write the program as torch.distributed.pipelining's CSV");
  command->add_flag("--lowered", o->lowered, "With --csv: sends and receives too");
}

}  // namespace

void add_simulate(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("simulate", "Predict and draw a pipeline's step");
  std::string names;
  for (const ScheduleInfo& info : all_schedules()) names += fmt::format("{}, ", info.name);
  command->add_option("--schedule", options->schedule, names + "or all of them in one table");
  command->add_option("--ranks", options->ranks, "K: workers in the pipeline");
  command->add_option("--micro-batches", options->micro_batches, "M: slices of the mini-batch");
  command->add_option("--chunks", options->chunks,
                      "V: stages a rank (default 2 for zb-v and interleaved-1f1b, else 1); with "
                      "all, for those that can have it");
  command->add_option("--mini-batches", options->mini_batches,
                      "Of asynchronous schedules: how many, one after the other (default: "
                      "enough for a steady state)");
  command->add_flag("--vertical-sync", options->vertical_sync,
                    "Of pipedream and eager-pipedream: the version of the weights that rank 0 used "
                    "on all ranks");
  command->add_option(
      "--from-csv", options->from_csv,
      "A program of torch.distributed.pipelining instead of a schedule: checked, then simulated");
  add_cost_options(command, options.get());
  add_output_options(command, options.get());
  command->footer(
      "Times are in any one unit: of one rank's whole share of the model for one micro-batch; a "
      "chunk costs its "
      "part of that. A receive delays the instruction that uses it, not the rank. Of asynchronous "
      "schedules, the step time is that of a mini-batch in the steady state.");
  command->callback([options] { run(*options); });
}

}  // namespace pipewright::cli
