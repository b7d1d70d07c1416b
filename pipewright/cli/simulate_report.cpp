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

std::string time_text(const Timeline& timeline, double time) {
  return timeline.time_unit == "s" ? format_seconds(time) : format_number(time);
}

nlohmann::ordered_json to_json(const SimulatedSchedule& schedule) {
  const Simulation& sim = schedule.simulation;
  std::vector<double> spans;
  for (const RankTimes& rank : sim.times.ranks()) spans.push_back(rank.span());
  std::vector<std::int64_t> bytes;
  for (const double peak : sim.peak_bytes) bytes.push_back(whole_bytes(peak));
  const Breakdown parts = breakdown(sim.times);
  nlohmann::ordered_json shares;
  for (const BreakdownPart& part : kBreakdownParts) {
    shares[std::string(part.name)] = parts.total > 0 ? parts.*part.value / parts.total : 0.0;
  }
  return {{"schedule", schedule.program.schedule},
          {"ranks", schedule.program.num_ranks()},
          {"chunks", schedule.program.num_chunks()},
          {"micro_batches", schedule.program.num_micro_batches},
          {"instructions", schedule.program.num_compute_instructions()},
          {"step_time", sim.step_time()},
          {"bubble_fraction", sim.times.bubble_fraction()},
          {"rank_span", spans},
          {"peak_in_flight", sim.peak_in_flight},
          {"peak_bytes", bytes},
          {"breakdown", shares}};
}

void write_timelines(std::span<const Timeline> timelines, const std::string& title,
                     const OutputOptions& options) {
  if (!options.html.empty()) write_file(options.html, to_html(timelines, title), "--html");
  if (!options.svg.empty()) write_file(options.svg, to_svg(timelines), "--svg");
  if (!options.chrome.empty()) write_file(options.chrome, to_chrome_trace(timelines), "--chrome");
}

std::string sizes_text(const Program& program) {
  return fmt::format("{} rank{}, {} chunk{} a rank, {} micro-batch{}", program.num_ranks(),
                     program.num_ranks() == 1 ? "" : "s", program.num_chunks(),
                     program.num_chunks() == 1 ? "" : "s", program.num_micro_batches,
                     program.num_micro_batches == 1 ? "" : "es");
}

double most(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

void print_table(const std::vector<SimulatedSchedule>& schedules) {
  const bool bytes = std::any_of(schedules.begin(), schedules.end(),
                                 [](const auto& s) { return most(s.simulation.peak_bytes) > 0; });
  fmt::print("{:<18}{:>7}{:>12}{:>9}{:>10}{:>15}", "schedule", "chunks", "step time", "bubble",
             "rank span", "most in flight");
  fmt::print("{}\n", bytes ? fmt::format("{:>14}", "peak bytes") : "");
  for (const auto& [program, sim] : schedules) {
    std::vector<double> spans;
    for (const RankTimes& rank : sim.times.ranks()) spans.push_back(rank.span());
    fmt::print("{:<18}{:>7}{:>12}{:>8.1f}%{:>10}{:>15}", program.schedule, program.num_chunks(),
               time_text(sim.timeline, sim.step_time()), 100 * sim.times.bubble_fraction(),
               time_text(sim.timeline, most(spans)), format_number(most(sim.peak_in_flight)));
    fmt::print("{}\n", bytes ? fmt::format("{:>14}", format_bytes(most(sim.peak_bytes))) : "");
  }
  fmt::print(
      "\nbubble: idle share of ranks x step time; rank span: the longest first start to last end "
      "of a rank;\n"
      "in flight: micro-batches a rank holds, the most of any rank\n");
}

void draw(const Timeline& timeline) {
  const Terminal terminal = standard_output();
  fmt::print("{}", draw_text(timeline, {.width = terminal.width, .colour = terminal.colour}));
}

}  // namespace

void report_one(const SimulatedSchedule& schedule, const OutputOptions& options) {
  const auto& [program, sim] = schedule;
  write_timelines({&sim.timeline, 1}, fmt::format("{}: {}", program.schedule, sizes_text(program)),
                  options);
  if (!options.csv.empty()) write_file(options.csv, write_csv(program), "--csv");
  if (options.json) {
    fmt::print("{}\n", to_json(schedule).dump());
    return;
  }
  draw(sim.timeline);
  if (options.text) return;
  fmt::print("\n{}: {}, {} instructions\n", program.schedule, sizes_text(program),
             program.num_compute_instructions());
  fmt::print("micro-batches in flight by rank: {}\n", fmt::join(sim.peak_in_flight, " "));
  if (most(sim.peak_bytes) > 0) {
    std::vector<std::string> peaks;
    for (const double peak : sim.peak_bytes) peaks.push_back(format_bytes(peak));
    fmt::print("peak bytes by rank: {}\n", fmt::join(peaks, ", "));
  }
  const BreakdownRow row{program.schedule, breakdown(sim.times)};
  fmt::print("\n{}", breakdown_table({&row, 1}));
}

void report_all(const std::vector<SimulatedSchedule>& schedules, const OutputOptions& options) {
  std::vector<Timeline> timelines;
  for (const auto& schedule : schedules) timelines.push_back(schedule.simulation.timeline);
  const std::string title = fmt::format("All schedules: {} ranks, {} micro-batches",
                                        schedules.front().program.num_ranks(),
                                        schedules.front().program.num_micro_batches);
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
