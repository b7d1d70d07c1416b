#pragma once

#include <optional>
#include <string>

#include "benchmarks/pipeline/cell.h"

namespace pipewright::bench {

/// Another program that trains the same: a script that takes --schedule, --layers, --dim, --heads,
/// --seq, --vocab, --batch, --micro-batches and --steps, is started by torch.distributed.run, and
/// prints a JSON object with seconds_per_step.
struct Peer {
  std::string script;
  std::string python = "python3";
};

/// Seconds of a step; none where it failed, with what it said on our standard error.
std::optional<double> measure_peer(const Peer& peer, const Sizes& sizes, int ranks,
                                   int micro_batches, const std::string& schedule, int steps);

}  // namespace pipewright::bench
