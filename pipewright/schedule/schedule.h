#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pipewright/ir/program.h"

namespace pipewright {

struct ScheduleSpec {
  std::string name;
  int ranks = 1;
  int micro_batches = 1;
  int chunks = 0;  // stages a rank; 0: the schedule's default

  // Of asynchronous schedules.
  int mini_batches = 0;   // one after the other; 0: enough to see a steady state
  int updates_every = 0;  // mini-batches an update; 0: as few as the schedule can do with
  bool vertical_sync = false;
};

/// What there is to know about a schedule without running it.
struct ScheduleInfo {
  std::string_view name;
  std::string_view summary;  // one line for tables and --help
  int default_chunks = 1;
  int least_chunks = 1;
  int most_chunks = 1;
  bool splits_backward = false;  // writes I and W instead of B
  bool forward_only = false;
  bool asynchronous = false;  // goes on over mini-batches with delayed weights: see continuing.h
  bool two_versions = false;  // of the weights, whatever the ranks; asynchronous
  int lead = 1;  // asynchronous: rank r is lead x (K - 1 - r) forwards ahead of its backwards
  Program (*make)(const ScheduleSpec& spec) = nullptr;
};

/// All of them, in the order in which they are listed to people.
const std::vector<ScheduleInfo>& all_schedules();

/// Throws InvalidArgument listing the names there are.
const ScheduleInfo& find_schedule(std::string_view name);

/// The compute-only Program of one step: a pure function of the spec. Any ranks >= 1 and
/// micro-batches
/// >= 1, fewer micro-batches than ranks too. Every stage's micro-batches are backpropagated in
/// increasing order. Of an asynchronous schedule: several mini-batches, from the first warm-up to
/// the drain, micro-batches numbered through, with its updates. Throws InvalidArgument for an
/// unknown name or a size that is out of range.
Program make_schedule(const ScheduleSpec& spec);

/// Of an asynchronous schedule, what stands for 0 in its spec: the sizes that make_schedule takes.
/// Those with two versions merge as many mini-batches into an update as least_between_updates()
/// asks.
ScheduleSpec filled_in(ScheduleSpec spec);

/// How many micro-batches there must be between two updates: more than one where two versions of
/// the weights would not be enough otherwise. Throws as find_schedule().
int least_between_updates(std::string_view schedule, int ranks);

/// Whether it has ScheduleSpec::vertical_sync. Throws as find_schedule().
bool has_vertical_sync(std::string_view schedule);

}  // namespace pipewright
