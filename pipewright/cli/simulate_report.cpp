#include "pipewright/cli/simulate_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "pipewright/base/file.h"
#include "pipewright/base/units.h"
#include "pipewright/cli/terminal.h"
#include "pipewright/ir/csv.h"
#include "pipewright/trace/breakdown.h"
#include "pipewright/trace/chrome.h"
#include "pipewright/trace/html.h"
#include "pipewright/trace/svg.h"
#include "pipewright/trace/text.h"

namespace pipewright::cli {
namespace {

/// Bytes may be fractions where a share was divided by chunks: rounded up, but not for rounding's
/// own dust.
std::int64_t whole_bytes(double bytes) {
  return static_cast<std::int64_t>(std::ceil(bytes - 1e-3));
}

std::vector<std::int64_t> whole_bytes(const std::vector<double>& all) {
  std::vector<std::int64_t> whole;
  for (const double bytes : all) whole.push_back(whole_bytes(bytes));
  return whole;
}

std::string time_text(const Timeline& timeline, double time) {
  return timeline.time_unit == "s" ? format_seconds(time) : format_number(time);
}

nlohmann::ordered_json to_json(const SimulatedSchedule& schedule) {
  const Simulation& sim = schedule.simulation;
  const Breakdown parts = breakdown(schedule.times());
  nlohmann::ordered_json shares;
  for (const BreakdownPart& part : kBreakdownParts) {
    shares[std::string(part.name)] = parts.total > 0 ? parts.*part.value / parts.total : 0.0;
  }
  nlohmann::ordered_json json = {{"schedule", schedule.program.schedule},
                                 {"ranks", schedule.program.num_ranks()},
                                 {"chunks", schedule.program.num_chunks()},
                                 {"micro_batches", schedule.spec.micro_batches},
                                 {"instructions", schedule.program.num_compute_instructions()},
                                 {"step_time", schedule.step_time()},
                                 {"bubble_fraction", schedule.bubble_fraction()},
                                 {"rank_span", schedule.rank_spans()},
                                 {"peak_in_flight", sim.peak_in_flight},
                                 {"peak_bytes", whole_bytes(sim.peak_bytes)},
                                 {"breakdown", shares}};
  if (!sim.asynchronous) return json;
  json["mini_batches"] = schedule.spec.mini_batches;
  json["updates_every"] = schedule.spec.updates_every;
  json["steady"] = sim.asynchronous->is_steady;
  json["versions"] = sim.asynchronous->versions;
  json["version_bytes"] = whole_bytes(sim.asynchronous->version_bytes);
  json["delay"] = sim.asynchronous->delay;
  return json;
}

void write_timelines(std::span<const Timeline> timelines, const std::string& title,
                     const OutputOptions& options) {
  if (!options.html.empty()) write_file(options.html, to_html(timelines, title), "--html");
  if (!options.svg.empty()) write_file(options.svg, to_svg(timelines), "--svg");
  if (!options.chrome.empty()) write_file(options.chrome, to_chrome_trace(timelines), "--chrome");
}

std::string sizes_text(const SimulatedSchedule& schedule) {
  const int ranks = schedule.program.num_ranks();
  const int chunks = schedule.program.num_chunks();
  const int micro_batches = schedule.spec.micro_batches;
  std::string text =
      fmt::format("{} rank{}, {} chunk{} a rank, {} micro-batch{}", ranks, ranks == 1 ? "" : "s",
                  chunks, chunks == 1 ? "" : "s", micro_batches, micro_batches == 1 ? "" : "es");
  if (!schedule.asynchronous()) return text;
  return fmt::format("{} a mini-batch, {} mini-batches", text, schedule.spec.mini_batches);
}

template <typename Number>
Number most(const std::vector<Number>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

/// What an asynchronous schedule does to the training, in a sentence or two.
std::string delay_words(const SimulatedSchedule& schedule) {
  const AsynchronousFigures& figures = *schedule.simulation.asynchronous;
  const int delay = most(figures.delay);
  std::string text =
      delay == 0
          ? fmt::format("{}: no update is delayed", schedule.program.schedule)
          : fmt::format(
                "{}: updates are delayed: a gradient changes weights that have been "
                "updated up to {}\n  since it was made (by rank: {})",
                schedule.program.schedule, delay == 1 ? "once" : fmt::format("{} times", delay),
                fmt::join(figures.delay, " "));
  text += fmt::format("; versions held by rank: {}", fmt::join(figures.versions, " "));
  if (schedule.spec.updates_every > 1) {
    text += fmt::format("; an update every {} mini-batches", schedule.spec.updates_every);
  }
  if (!figures.is_steady) {
    text += "\n  too few mini-batches for a steady state: times have a warm-up and a drain in them";
  }
  return text;
}

void print_row(const SimulatedSchedule& schedule, bool bytes, bool versions) {
  const Simulation& sim = schedule.simulation;
  fmt::print("{:<19}{:>7}{:>12}{:>8.1f}%{:>10}{:>15}", schedule.program.schedule,
             schedule.program.num_chunks(), time_text(sim.timeline, schedule.step_time()),
             100 * schedule.bubble_fraction(), time_text(sim.timeline, most(schedule.rank_spans())),
             format_number(most(sim.peak_in_flight)));
  if (versions) {
    fmt::print("{:>10}{:>7}", sim.asynchronous ? most(sim.asynchronous->versions) : 1,
               sim.asynchronous ? most(sim.asynchronous->delay) : 0);
  }
  fmt::print("{}\n", bytes ? fmt::format("{:>14}", format_bytes(most(sim.peak_bytes))) : "");
}

void print_table(const std::vector<SimulatedSchedule>& schedules) {
  const bool bytes = std::any_of(schedules.begin(), schedules.end(),
                                 [](const auto& s) { return most(s.simulation.peak_bytes) > 0; });
  const bool versions = std::any_of(schedules.begin(), schedules.end(),
                                    [](const auto& s) { return s.asynchronous(); });
  fmt::print("{:<19}{:>7}{:>12}{:>9}{:>10}{:>15}{}{}\n", "schedule", "chunks", "step time",
             "bubble", "rank span", "most in flight",
             versions ? fmt::format("{:>10}{:>7}", "versions", "delay") : "",
             bytes ? fmt::format("{:>14}", "peak bytes") : "");
  for (const SimulatedSchedule& schedule : schedules) print_row(schedule, bytes, versions);
  fmt::print(
      "\nbubble: idle share of ranks x step time; rank span: the longest first start to last end "
      "of a rank;\n"
      "in flight: micro-batches a rank holds, the most of any rank\n");
  if (!versions) return;
  fmt::print(
      "versions: of its weights that a rank holds, the most; delay: updates that a gradient comes "
      "too late, the most\n\n"
      "Those with a delay go on from one mini-batch to the next: their gradients are of older "
      "weights "
      "than they change,\nand they do not train as all others do. Their times are of a mini-batch "
      "in "
      "the steady state.\n");
  for (const SimulatedSchedule& schedule : schedules) {
    if (schedule.asynchronous()) fmt::print("{}\n", delay_words(schedule));
  }
}

void print_bytes(std::string_view what, const std::vector<double>& by_rank) {
  if (!(most(by_rank) > 0)) return;
  std::vector<std::string> texts;
  for (const double bytes : by_rank) texts.push_back(format_bytes(bytes));
  fmt::print("{}: {}\n", what, fmt::join(texts, ", "));
}

void draw(const Timeline& timeline) {
  const Terminal terminal = standard_output();
  fmt::print("{}", draw_text(timeline, {.width = terminal.width, .colour = terminal.colour}));
}

}  // namespace

double SimulatedSchedule::step_time() const {
  return asynchronous() ? simulation.asynchronous->mini_batch_time(spec.micro_batches)
                        : simulation.step_time();
}

double SimulatedSchedule::bubble_fraction() const { return times().bubble_fraction(); }

const StepTimes& SimulatedSchedule::times() const {
  return asynchronous() ? simulation.asynchronous->steady : simulation.times;
}

std::vector<double> SimulatedSchedule::rank_spans() const {
  std::vector<double> spans;
  for (const RankTimes& rank : times().ranks()) {
    const double share =
        asynchronous() && times().step_time() > 0 ? step_time() / times().step_time() : 1;
    spans.push_back(rank.span() * share);
  }
  return spans;
}

void report_one(const SimulatedSchedule& schedule, const OutputOptions& options) {
  const Program& program = schedule.program;
  const Simulation& sim = schedule.simulation;
  const std::string sizes = sizes_text(schedule);
  write_timelines({&sim.timeline, 1}, fmt::format("{}: {}", program.schedule, sizes), options);
  if (!options.csv.empty()) write_file(options.csv, write_csv(program), "--csv");
  if (!options.csv.empty() && program.is_asynchronous()) {
    fmt::print(stderr,
               "pipewright: [csv] PyTorch's CSV has no versions of the weights: they are left "
               "out\n");
  }
  if (options.json) {
    fmt::print("{}\n", to_json(schedule).dump());
    return;
  }
  draw(sim.timeline);
  if (options.text) return;
  fmt::print("\n{}: {}, {} instructions\n", program.schedule, sizes,
             program.num_compute_instructions());
  if (schedule.asynchronous()) {
    fmt::print("a mini-batch in the steady state: {}, bubble {:.1f}%\n{}\n",
               time_text(sim.timeline, schedule.step_time()), 100 * schedule.bubble_fraction(),
               delay_words(schedule));
  }
  fmt::print("micro-batches in flight by rank: {}\n", fmt::join(sim.peak_in_flight, " "));
  print_bytes("peak bytes by rank", sim.peak_bytes);
  if (schedule.asynchronous()) {
    print_bytes("of those, versions beside the newest", sim.asynchronous->version_bytes);
  }
  const BreakdownRow row{program.schedule, breakdown(schedule.times())};
  fmt::print("\n{}", breakdown_table({&row, 1}));
}

void report_all(const std::vector<SimulatedSchedule>& schedules, const OutputOptions& options) {
  std::vector<Timeline> timelines;
  for (const auto& schedule : schedules) timelines.push_back(schedule.simulation.timeline);
  const std::string title =
      fmt::format("All schedules: {} ranks, {} micro-batches",
                  schedules.front().program.num_ranks(), schedules.front().spec.micro_batches);
  write_timelines(timelines, title, options);
  if (options.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& schedule : schedules) list.push_back(to_json(schedule));
    fmt::print("{}\n", nlohmann::ordered_json{{"schedules", list}}.dump());
    return;
  }
  if (options.text) {
    for (const Timeline& timeline : timelines) {
      draw(timeline);
      fmt::print("\n");
    }
  }
  print_table(schedules);
}

}  // namespace pipewright::cli
