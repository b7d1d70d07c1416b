#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/ir/program.h"
#include "pipewright/recompute/chain.h"

namespace pipewright {

/// How a model is to be trained, and what was predicted for it. Kept in a file.
struct Plan {
  std::string model;
  std::string schedule = "1f1b";
  int ranks = 1;
  int chunks = 1;
  std::int64_t global_batch = 1;
  int micro_batches = 1;
  int micro_batch_size = 1;                        // the largest
  std::vector<int> sizes;                          // layers by stage
  std::int64_t memory_bytes = 0;                   // a rank's budget; 0: without end
  std::vector<std::vector<Operation>> operations;  // by stage; empty: nothing is run again
  bool except_last = false;   // operations are not of the last micro-batch, of which all is kept
  std::vector<char> offload;  // by stage: what it keeps goes to the host; empty: of no stage

  double step_seconds = 0;
  double bubble_fraction = 0;
  std::vector<std::int64_t> peak_bytes;  // by rank
  int delay = 0;  // updates that a gradient comes late, the most; 0: of a synchronous schedule

  std::string recompute() const {
    if (operations.empty()) return "none";
    return except_last ? "except_last" : "budget";
  }
  bool offloads() const { return std::count(offload.begin(), offload.end(), 1) > 0; }
  bool offloads(std::size_t stage) const { return stage < offload.size() && offload[stage] != 0; }
  double samples_per_second() const { return static_cast<double>(global_batch) / step_seconds; }

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// The plan's Program: lowered, with R where something is run again and with the update. Of an
/// asynchronous schedule several mini-batches, see make_schedule().
Program plan_program(const Plan& plan);

/// The file's text. Throws InvalidArgument(`where`) naming the member.
Plan parse_plan(std::string_view json, std::string_view where);
Plan load_plan(const std::string& path);

/// The text that parse_plan reads back to an equal Plan.
std::string to_json(const Plan& plan);

}  // namespace pipewright
