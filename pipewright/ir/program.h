#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/ir/instruction.h"

namespace pipewright {

/// A training step: for every rank, the list of instructions it runs in order. No time lives here,
/// and nothing else decides what a rank does next.
struct Program {
  std::string schedule;  // its name, for people
  int num_micro_batches = 0;
  bool forward_only = false;   // no backward is expected: inference
  std::vector<int> placement;  // the rank of each stage
  std::vector<std::vector<Instruction>> ranks;

  int num_ranks() const { return static_cast<int>(ranks.size()); }
  int num_stages() const { return static_cast<int>(placement.size()); }
  /// Stages a rank, the most of any rank.
  int num_chunks() const;
  std::size_t num_instructions() const;
  /// F, B, I, W and R alone.
  std::size_t num_compute_instructions() const;
  /// True where stages of different ranks exchange tensors by explicit SEND and RECV.
  bool is_lowered() const;

  friend bool operator==(const Program&, const Program&) = default;
};

/// The text form, which parse_program reads back to an equal Program:
///
///     program 1f1b
///     micro_batches 2
///     placement 0 1
///     rank 0: 0F0 0F1 0B0 0B1
///     rank 1: 1F0 1B0 1F1 1B1
///
/// `forward_only` stands on a line of its own where it holds; `#` starts a comment.
std::string to_text(const Program& program);

/// Throws InvalidArgument with the line and what is wrong with it. The Program need not be valid.
Program parse_program(std::string_view text);

}  // namespace pipewright
