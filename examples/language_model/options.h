#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// What the command line says.
struct Options {
  int ranks = 2;  // where it was launched: as many as processes
  int micro_batches = 8;
  std::string schedule = "1f1b";
  int steps = 600;
  std::int64_t batch = 32;  // sequences a step
  std::int64_t layers = 4;
  std::int64_t dim = 64;
  std::int64_t heads = 4;
  std::int64_t seq = 64;  // characters a sequence
  double learning_rate = 5e-3;
  std::uint64_t seed = 1;
  std::string html = "training.html";
  std::string checkpoints;  // folder; empty: none are saved
  int save_every = 100;     // steps
  bool resume = false;

  /// One of several processes, of which one speaks for all.
  bool launched = false;
  bool speaks = true;
};

/// Nothing where --help was asked for and answered. Throws pipewright::InvalidArgument.
std::optional<Options> parse_options(int argc, char** argv);
