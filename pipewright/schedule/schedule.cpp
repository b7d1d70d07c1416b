#include "pipewright/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "pipewright/base/error.h"
#include "pipewright/schedule/makers.h"

namespace pipewright {
namespace {

constexpr int kMostChunks = 1024;
constexpr std::int64_t kMostInstructions = std::int64_t{1} << 28;

std::string known_names() {
  std::string names;
  for (const ScheduleInfo& info : all_schedules()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
  }
  return names;
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Where the spec does not say: enough that half of the backwards are neither of the warm-up nor of
/// the drain, in whole updates.
std::int64_t mini_batches_of(const ScheduleSpec& spec, const ScheduleInfo& info) {
  if (!info.asynchronous) return 1;
  if (spec.mini_batches > 0) return spec.mini_batches;
  constexpr std::int64_t kLeastUpdates = 4;
  constexpr std::int64_t kMicroBatchesARank = 6;
  const std::int64_t updates_every = std::max(spec.updates_every, 1);
  const std::int64_t updates =
      ceil_divide(kMicroBatchesARank * info.lead * spec.ranks, spec.micro_batches * updates_every);
  return updates_every * std::max(updates, kLeastUpdates);
}

/// Sizes that only asynchronous schedules have.
void check_going_on(const ScheduleSpec& spec, const ScheduleInfo& info) {
  const auto refuse = [](const std::string& why) { throw InvalidArgument("schedule", why); };
  if (spec.mini_batches < 0 || spec.updates_every < 0) {
    refuse(fmt::format("cannot run {} mini-batches with an update every {}; use 1 or more",
                       spec.mini_batches, spec.updates_every));
  }
  const bool several = spec.mini_batches > 1 || spec.updates_every > 1 || spec.vertical_sync;
  if (several && !info.asynchronous) {
    refuse(
        fmt::format("{} ends with every mini-batch: several of them and vertical sync are for "
                    "pipedream and pipedream-2bw",
                    info.name));
  }
}

void check_sizes(const ScheduleSpec& spec, const ScheduleInfo& info) {
  const auto refuse = [](const std::string& why) { throw InvalidArgument("schedule", why); };
  if (spec.ranks < 1)
    refuse(fmt::format("cannot run on {} ranks; use --ranks 1 or more", spec.ranks));
  if (spec.micro_batches < 1) {
    refuse(fmt::format("cannot run {} micro-batches; use --micro-batches 1 or more",
                       spec.micro_batches));
  }
  if (spec.chunks < info.least_chunks || spec.chunks > info.most_chunks) {
    const std::string range = info.least_chunks == info.most_chunks
                                  ? fmt::format("exactly {}", info.most_chunks)
                                  : fmt::format("{} to {}", info.least_chunks, info.most_chunks);
    refuse(fmt::format("{} runs {} chunk{} a rank, not {}{}", info.name, range,
                       info.most_chunks == 1 ? "" : "s", spec.chunks,
                       info.most_chunks == 1 ? "; interleaved-1f1b runs several" : ""));
  }
  const std::int64_t stages = std::int64_t{spec.ranks} * spec.chunks;
  const std::int64_t micro_batches = spec.micro_batches * mini_batches_of(spec, info);
  if (stages > Instruction::kMaxStage || spec.micro_batches > Instruction::kMaxMicroBatch ||
      micro_batches > kMostInstructions / 3 / stages) {
    refuse(fmt::format("{} ranks of {} chunks with {} micro-batches are more than {} instructions",
                       spec.ranks, spec.chunks, spec.micro_batches, kMostInstructions));
  }
}

}  // namespace

const std::vector<ScheduleInfo>& all_schedules() {
  static const std::vector<ScheduleInfo> kSchedules = {
      {.name = "gpipe",
       .summary = "all forwards, then all backwards",
       .most_chunks = kMostChunks,
       .make = make_gpipe},
      {.name = "1f1b",
       .summary = "one forward, one backward: the same bubble, bounded memory",
       .make = make_1f1b},
      {.name = "eager-1f1b",
       .summary = "1f1b with a micro-batch in reserve: waits less for links and uneven ranks",
       .make = make_eager_1f1b},
      {.name = "interleaved-1f1b",
       .summary = "1f1b over several chunks a rank: a smaller bubble, more messages",
       .default_chunks = 2,
       .most_chunks = kMostChunks,
       .make = make_interleaved_1f1b},
      {.name = "zb-h1",
       .summary = "split backward fills the bubble, within 1f1b's memory",
       .splits_backward = true,
       .make = make_zb_h1},
      {.name = "zb-h2",
       .summary = "split backward, no bubble on a rank, twice 1f1b's memory",
       .splits_backward = true,
       .make = make_zb_h2},
      {.name = "zb-v",
       .summary =
           "split backward, two chunks in a V: no bubble on a rank, 1f1b's most memory on all",
       .default_chunks = 2,
       .least_chunks = 2,
       .most_chunks = 2,
       .splits_backward = true,
       .make = make_zb_v},
      {.name = "pipedream",
       .summary = "1f1b that never empties: no bubble, weights of several versions, late updates",
       .asynchronous = true,
       .make = make_continuing},
      {.name = "pipedream-2bw",
       .summary = "the same with two versions of the weights: updates one late on all ranks",
       .asynchronous = true,
       .two_versions = true,
       .make = make_continuing},
      {.name = "eager-pipedream",
       .summary = "pipedream with micro-batches in reserve: waits less for links and uneven ranks",
       .asynchronous = true,
       .lead = 2,
       .make = make_continuing},
      {.name = "eager-pipedream-2bw",
       .summary = "pipedream-2bw with micro-batches in reserve: computes the same, waits less",
       .asynchronous = true,
       .two_versions = true,
       .lead = 2,
       .make = make_continuing},
      {.name = "forward-only",
       .summary = "inference",
       .most_chunks = kMostChunks,
       .forward_only = true,
       .make = make_forward_only},
  };
  return kSchedules;
}

const ScheduleInfo& find_schedule(std::string_view name) {
  for (const ScheduleInfo& info : all_schedules()) {
    if (info.name == name) return info;
  }
  throw InvalidArgument("schedule", fmt::format("'{}' is no schedule; there are {}",
                                                name.substr(0, 40), known_names()));
}

int least_between_updates(std::string_view schedule, int ranks) {
  const ScheduleInfo& info = find_schedule(schedule);
  return info.two_versions ? info.lead * (ranks - 1) + 1 : 1;
}

bool has_vertical_sync(std::string_view schedule) {
  const ScheduleInfo& info = find_schedule(schedule);
  return info.asynchronous && !info.two_versions;
}

ScheduleSpec filled_in(ScheduleSpec spec) {
  const ScheduleInfo& info = find_schedule(spec.name);
  if (spec.chunks == 0) spec.chunks = info.default_chunks;
  check_going_on(spec, info);
  if (info.asynchronous && spec.updates_every == 0 && spec.ranks > 0 && spec.micro_batches > 0) {
    const int least = least_between_updates(info.name, spec.ranks);
    spec.updates_every = static_cast<int>(ceil_divide(least, spec.micro_batches));
  }
  check_sizes(spec, info);
  spec.mini_batches = static_cast<int>(mini_batches_of(spec, info));
  return spec;
}

Program make_schedule(const ScheduleSpec& spec) {
  const ScheduleInfo& info = find_schedule(spec.name);
  const ScheduleSpec full = filled_in(spec);
  Program program = info.make(full);
  program.schedule = info.name;
  program.num_micro_batches = full.micro_batches * full.mini_batches;
  program.forward_only = info.forward_only;
  return program;
}

std::vector<int> looped_placement(int ranks, int chunks) {
  std::vector<int> placement(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(chunks));
  for (std::size_t stage = 0; stage < placement.size(); ++stage) {
    placement[stage] = static_cast<int>(stage) % ranks;
  }
  return placement;
}

}  // namespace pipewright
