#include "pipewright/cli/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/base/units.h"
#include "pipewright/cli/commands.h"

namespace pipewright::cli {
namespace {

nlohmann::ordered_json shape_json(const Plan& plan) {
  return {{"schedule", plan.schedule},
          {"ranks", plan.ranks},
          {"chunks", plan.chunks},
          {"micro_batches", plan.micro_batches},
          {"micro_batch_size", plan.micro_batch_size},
          {"sizes", plan.sizes},
          {"recompute", plan.recompute()},
          {"offload", plan.offloads()}};
}

void print_json(const PlanSearch& found, std::size_t top) {
  auto plans = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < std::min(top, found.plans.size()); ++i) {
    auto plan = shape_json(found.plans[i]);
    plan["step_seconds"] = found.plans[i].step_seconds;
    plan["samples_per_second"] = found.plans[i].samples_per_second();
    plan["bubble_fraction"] = found.plans[i].bubble_fraction;
    plan["peak_bytes"] = found.plans[i].peak_bytes;
    plan["delay"] = found.plans[i].delay;
    plans.push_back(std::move(plan));
  }
  auto rejected = nlohmann::ordered_json::array();
  for (const auto& [plan, reason] : found.rejected) {
    auto entry = shape_json(plan);
    entry["reason"] = reason;
    rejected.push_back(std::move(entry));
  }
  const nlohmann::ordered_json out = {
      {"fitting", found.plans.size()}, {"plans", plans}, {"rejected", rejected}};
  fmt::print("{}\n", out.dump());
}

std::string peaks_text(const Plan& plan) {
  std::vector<std::string> peaks;
  for (const std::int64_t bytes : plan.peak_bytes)
    peaks.push_back(format_bytes(static_cast<double>(bytes)));
  return fmt::format("{}", fmt::join(peaks, ", "));
}

bool any_delay(std::span<const Plan> plans) {
  return std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.delay > 0; });
}

void print_delay_words(std::span<const Plan> plans) {
  if (!any_delay(plans)) return;
  fmt::print(
      "\nPlans with a delay go on from one mini-batch to the next: a gradient changes weights that "
      "so many updates have\nchanged since it was made, and training is not that of the others. "
      "Their step is a mini-batch in the steady state,\ntheir peaks have the versions of the "
      "weights "
      "in them that they keep.\n");
}

void print_plans(const PlanSearch& found, std::size_t top) {
  if (found.plans.empty()) return;
  const std::size_t shown = std::min(top, found.plans.size());
  std::size_t width = std::string_view("peak by rank").size();
  for (std::size_t i = 0; i < shown; ++i)
    width = std::max(width, peaks_text(found.plans[i]).size());
  const bool delays = any_delay({found.plans.data(), shown});
  fmt::print("{:<19}{:>7}{:>14}{:>6}{:>11}{:>11}{:>8}{}  {:<{}}  {}\n", "schedule", "chunks",
             "micro-batches", "size", "recompute", "step", "bubble",
             delays ? fmt::format("{:>7}", "delay") : "", "peak by rank", width, "layers by stage");
  for (std::size_t i = 0; i < shown; ++i) {
    const Plan& plan = found.plans[i];
    fmt::print("{:<19}{:>7}{:>14}{:>6}{:>11}{:>11}{:>7.1f}%{}  {:<{}}  {}\n", plan.schedule,
               plan.chunks, plan.micro_batches, plan.micro_batch_size, plan.recompute(),
               format_seconds(plan.step_seconds), 100 * plan.bubble_fraction,
               delays ? fmt::format("{:>7}", plan.delay) : "", peaks_text(plan), width,
               fmt::join(plan.sizes, " "));
  }
  print_delay_words({found.plans.data(), shown});
  fmt::print("\nThe best of {} that fit: {} samples/s.\n", found.plans.size(),
             format_number(found.plans[0].samples_per_second()));
}

/// Of every schedule, how many were rejected and, of the nearest miss, why.
void print_rejected(const PlanSearch& found) {
  if (found.rejected.empty()) return;
  std::map<std::string, std::pair<int, const RejectedPlan*>> by_schedule;
  for (const RejectedPlan& rejected : found.rejected) {
    const std::string name =
        fmt::format("{}, {} chunk{}", rejected.plan.schedule, rejected.plan.chunks,
                    rejected.plan.chunks == 1 ? "" : "s");
    auto& [count, last] = by_schedule[name];
    ++count;
    last = &rejected;  // in order of micro-batches: the last has the smallest ones
  }
  fmt::print("\nRejected:\n");
  for (const auto& [name, entry] : by_schedule) {
    const auto& [count, last] = entry;
    const std::string sizes = count == 1 ? ""
                                         : fmt::format(" ({} sizes; of micro-batches of {}:)",
                                                       count, last->plan.micro_batch_size);
    fmt::print("  {}{}: {}\n", name, sizes, last->reason);
  }
}

}  // namespace

void add_plan_options(CLI::App* command, PlanOptions* options) {
  command->add_option("config", options->config,
                      "A config, TOML: its model is measured here; or give --profile");
  command->add_option("--set", options->overrides, "section.key=value, instead of the config's");
  command->add_option("--profile", options->profiles,
                      "The model's measured costs; several files, of different micro-batch sizes, "
                      "predict other sizes better than one");
  command->add_option("--global-batch", options->global_batch,
                      "Samples a step (default: the config's)");
  command->add_option("--ranks", options->ranks,
                      "K: workers in the pipeline (default: the config's, or 1)");
  command->add_option("--memory", options->memory,
                      "Bytes a rank may take, e.g. 8GiB (default: without end)");
  command->add_option("--link-bandwidth", options->link_bandwidth,
                      "Bytes a second between two ranks, e.g. 10GB (default: links cost nothing)");
  command->add_option("--link-latency", options->link_latency,
                      "Seconds a message travels (default 0)");
  command->add_option("--schedule", options->schedules,
                      "Choose among these alone (default: all but asynchronous ones; for one rank "
                      "1f1b, which is plain accumulation there)");
  command->add_flag(
      "--asynchronous", options->asynchronous,
      "Among them pipedream, pipedream-2bw and their eager- ones, which go on from one mini-batch "
      "to the next: no bubble, but updates come late");
  command->add_flag("--offload", options->offload,
                    "What recompute keeps may go to the host's memory where that is faster, at the "
                    "profile's host_bandwidth");
  command->add_option("--top", options->top, "How many plans to show (default 10)");
  command->add_option("--output", options->output,
                      "Write the best plan to this file, for pipewright train --plan");
  command->add_option("--save-profiles", options->save_profiles,
                      "Write what was measured of a config's model into this folder, a file a "
                      "micro-batch size");
  command->add_flag(
      "--json", options->json,
      "Print one JSON object: fitting, plans [{schedule, ranks, chunks, "
      "micro_batches, micro_batch_size, sizes, recompute, step_seconds, "
      "samples_per_second, bubble_fraction, peak_bytes, delay}], rejected [{..., reason}]");
}

PlanRequest plan_request(const PlanOptions& options, std::int64_t ranks,
                         std::int64_t global_batch) {
  PlanRequest request;
  request.ranks = static_cast<int>(
      options.ranks.empty() ? ranks : parse_integer(options.ranks, "--ranks", 1, 1 << 20));
  request.global_batch =
      options.global_batch.empty()
          ? global_batch
          : parse_integer(options.global_batch, "--global-batch", 1, std::int64_t{1} << 30);
  if (!options.memory.empty()) {
    request.memory_bytes = parse_bytes(options.memory, "--memory");
    if (request.memory_bytes < 1) throw InvalidArgument("--memory", "0 bytes hold nothing");
  }
  if (!options.link_bandwidth.empty()) {
    request.link_bandwidth =
        static_cast<double>(parse_bytes(options.link_bandwidth, "--link-bandwidth"));
    if (request.link_bandwidth < 1) throw InvalidArgument("--link-bandwidth", "0 bytes a second");
  }
  if (!options.link_latency.empty())
    request.link_latency = parse_non_negative(options.link_latency, "--link-latency");
  request.schedules = options.schedules;
  request.offload = options.offload;
  request.asynchronous = options.asynchronous;
  return request;
}

void show_plans(const PlanSearch& found, const PlanOptions& options) {
  const auto top = static_cast<std::size_t>(parse_integer(options.top, "--top", 1, 1 << 20));
  if (options.json) {
    print_json(found, top);
  } else {
    print_plans(found, top);
    print_rejected(found);
  }
  if (found.plans.empty()) {
    if (!options.json)
      fmt::print(stderr, "pipewright: [plan] nothing fits; give more --memory or --ranks\n");
    throw Exit{1};
  }
  if (!options.output.empty()) write_file(options.output, to_json(found.plans[0]), "--output");
}

}  // namespace pipewright::cli
