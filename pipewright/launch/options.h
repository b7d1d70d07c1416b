#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/launch/clock.h"

namespace pipewright::launch {

/// HOST:PORT.
struct Endpoint {
  std::string host;
  int port = 0;

  /// As it is written: an IPv6 address in brackets.
  std::string text() const;
};

inline constexpr int kMostLocalRanks = 4096;
inline constexpr int kMostNodes = 4096;
inline constexpr int kMostRestarts = 1'000'000;
inline constexpr double kMostSeconds = 7 * 24 * 3600;

/// What one launcher is asked for. Every node of a run has one of its own.
struct LaunchOptions {
  int local_ranks = 1;
  std::vector<int> devices;  // none: CUDA_VISIBLE_DEVICES stays as it is
  int nnodes = 1;
  int node_rank = 0;
  std::optional<Endpoint> master;
  std::string log_dir;  // empty: a new folder in pipewright-logs/
  int max_restarts = 0;
  Seconds deadline{30};  // to meet the other nodes, and to hear from them
  Seconds grace{10};     // from the signal that asks a rank to end to the one that makes it
  std::vector<std::string> command;
};

/// Throws InvalidArgument naming the option where they do not go together.
void check(const LaunchOptions& options);

/// Reads `0,1,2`. Throws InvalidArgument naming the entry that is no number or there twice.
std::vector<int> parse_devices(std::string_view text);

/// Reads `host:port`, `10.0.0.1:29500`, `[::1]:29500`; throws InvalidArgument otherwise.
Endpoint parse_endpoint(std::string_view text);

}  // namespace pipewright::launch
