#include "pipewright/plan/plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/base/json.h"
#include "pipewright/base/units.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright {
namespace {

constexpr std::string_view kFormat = "pipewright-plan";
constexpr int kVersion = 1;
constexpr std::int64_t kMost = std::int64_t{1} << 60;
constexpr int kMostCount = 1 << 24;

// In the file a stage's operations are one text: "S1-12 B12-1". A letter an operation, then its
// layer, or the first and last one of a run, which goes down for backwards.
constexpr std::string_view kLetters = "DKSB";

std::string operations_text(const std::vector<Operation>& operations) {
  std::string text;
  for (std::size_t i = 0; i < operations.size();) {
    const Operation& first = operations[i];
    const std::size_t end = run_end(operations, i);
    text += fmt::format("{}{}{}", text.empty() ? "" : " ",
                        kLetters[static_cast<std::size_t>(first.op)], first.layer);
    if (end - i > 1) text += fmt::format("-{}", operations[end - 1].layer);
    i = end;
  }
  return text;
}

/// "S1-12": adds the run's operations.
void add_run(std::string_view text, std::string_view where, std::vector<Operation>* operations) {
  const std::size_t letter = text.empty() ? std::string_view::npos : kLetters.find(text[0]);
  if (letter == std::string_view::npos)
    throw InvalidArgument(where, fmt::format("'{}' is no operation; D, K, S or B", text));
  const std::size_t dash = std::min(text.find('-'), text.size());
  const auto number = [&](std::string_view digits) {
    return static_cast<int>(parse_integer(digits, where, 1, kMostCount));
  };
  const int first = number(text.substr(1, dash - 1));
  const int last = dash == text.size() ? first : number(text.substr(dash + 1));
  const auto op = static_cast<LayerOp>(letter);
  const int step = op == LayerOp::kBackward ? -1 : 1;
  if ((last - first) * step < 0)
    throw InvalidArgument(where, fmt::format("'{}' runs the wrong way", text));
  for (int layer = first; layer != last + step; layer += step) operations->push_back({op, layer});
}

std::vector<Operation> parse_operations(std::string_view text, std::string_view where) {
  std::vector<Operation> operations;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    add_run(text.substr(0, space), where, &operations);
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return operations;
}

void check(const Plan& plan, std::string_view where) {
  const auto refuse = [&](const std::string& why) { throw InvalidArgument(where, why); };
  const auto stages = static_cast<std::size_t>(plan.ranks) * static_cast<std::size_t>(plan.chunks);
  if (plan.sizes.size() != stages)
    refuse(fmt::format("sizes are of {} stages, {} ranks of {} chunks have {}", plan.sizes.size(),
                       plan.ranks, plan.chunks, stages));
  if (plan.operations.empty()) return;
  if (plan.operations.size() != stages)
    refuse(fmt::format("operations are of {} stages, not {}", plan.operations.size(), stages));
  for (std::size_t s = 0; s < stages; ++s) {
    Chain chain;
    chain.layers.resize(static_cast<std::size_t>(plan.sizes[s]));
    run_operations(chain, plan.operations[s]);  // throws where they cannot run
  }
}

}  // namespace

Program plan_program(const Plan& plan) {
  Program program = make_schedule({.name = plan.schedule,
                                   .ranks = plan.ranks,
                                   .micro_batches = plan.micro_batches,
                                   .chunks = plan.chunks});
  if (!plan.operations.empty()) {
    program = lower_recompute(program,
                              plan.except_last ? RecomputePass::kExceptLast : RecomputePass::kAll);
  }
  return lower_step(lower_sends(program));
}

Plan parse_plan(std::string_view json, std::string_view where) {
  const nlohmann::json root = parse_json(json, where);
  const JsonObject object(root, where, "plan");
  object.refuse_unknown({"format", "version", "model", "schedule", "ranks", "chunks",
                         "global_batch", "micro_batches", "micro_batch_size", "sizes", "recompute",
                         "memory_bytes", "operations", "offload", "step_seconds", "bubble_fraction",
                         "peak_bytes", "delay"});
  if (object.string("format") != kFormat)
    throw InvalidArgument(where, fmt::format("this is no plan: format is not '{}'", kFormat));
  if (const auto version = object.integer("version", 0, INT32_MAX); version != kVersion) {
    throw InvalidArgument(
        where, fmt::format("the plan is of version {}, this program reads {}", version, kVersion));
  }
  Plan plan;
  const auto count = [&](std::string_view name) {
    return static_cast<int>(object.integer(name, 1, kMostCount));
  };
  plan.model = object.string_or("model", "");
  plan.schedule = object.string("schedule");
  plan.ranks = count("ranks");
  plan.chunks = count("chunks");
  plan.global_batch = object.integer("global_batch", 1, kMost);
  plan.micro_batches = count("micro_batches");
  plan.micro_batch_size = count("micro_batch_size");
  for (const std::int64_t size : object.integers("sizes", 1, kMostCount))
    plan.sizes.push_back(static_cast<int>(size));
  plan.memory_bytes = object.integer_or("memory_bytes", 0, kMost, 0);
  if (object.has("operations")) {
    for (const std::string& text : object.strings("operations"))
      plan.operations.push_back(parse_operations(text, where));
  }
  plan.offload.resize(plan.operations.size());
  if (object.has("offload")) {
    const auto stages = object.integers("offload", 0, kMostCount);
    for (const std::int64_t stage : stages) {
      if (stage >= static_cast<std::int64_t>(plan.offload.size()))
        throw InvalidArgument(
            where, fmt::format("offload names stage {}, which runs nothing again", stage));
      plan.offload[static_cast<std::size_t>(stage)] = 1;
    }
  }
  plan.step_seconds = object.non_negative_or("step_seconds", 0);
  plan.bubble_fraction = object.non_negative_or("bubble_fraction", 0);
  if (object.has("peak_bytes")) plan.peak_bytes = object.integers("peak_bytes", 0, kMost);
  plan.delay = static_cast<int>(object.integer_or("delay", 0, kMostCount, 0));
  const std::string said = object.string_or("recompute", plan.recompute());
  plan.except_last = said == "except_last" && !plan.operations.empty();
  if (said != plan.recompute())
    throw InvalidArgument(where, fmt::format("recompute is '{}', but the operations are of '{}'",
                                             said, plan.recompute()));
  check(plan, where);
  return plan;
}

Plan load_plan(const std::string& path) {
  return parse_plan(read_file(path, "plan"), fmt::format("plan {}", path));
}

std::string to_json(const Plan& plan) {
  nlohmann::ordered_json root = {{"format", kFormat},
                                 {"version", kVersion},
                                 {"model", plan.model},
                                 {"schedule", plan.schedule},
                                 {"ranks", plan.ranks},
                                 {"chunks", plan.chunks},
                                 {"global_batch", plan.global_batch},
                                 {"micro_batches", plan.micro_batches},
                                 {"micro_batch_size", plan.micro_batch_size},
                                 {"sizes", plan.sizes},
                                 {"recompute", plan.recompute()},
                                 {"memory_bytes", plan.memory_bytes}};
  if (!plan.operations.empty()) {
    std::vector<std::string> texts;
    for (const auto& operations : plan.operations) texts.push_back(operations_text(operations));
    root["operations"] = texts;
    std::vector<std::size_t> stages;
    for (std::size_t s = 0; s < plan.offload.size(); ++s) {
      if (plan.offload[s] != 0) stages.push_back(s);
    }
    root["offload"] = stages;
  }
  root["step_seconds"] = plan.step_seconds;
  root["bubble_fraction"] = plan.bubble_fraction;
  root["peak_bytes"] = plan.peak_bytes;
  if (plan.delay > 0) root["delay"] = plan.delay;
  return root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace pipewright
