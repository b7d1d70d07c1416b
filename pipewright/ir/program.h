#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/ir/instruction.h"

namespace pipewright {

/// What an asynchronous schedule has under way where a Program goes on from another: micro-batches
/// 0 to `micro_batches` - 1 have been through the forwards of all stages, and each stage has done
/// the backwards of the first `backwards[stage]` of them.
struct Carried {
  int micro_batches = 0;
  std::vector<int> backwards;  // by stage; empty where no micro-batch is carried

  friend bool operator==(const Carried&, const Carried&) = default;
};

/// A training step: for every rank, the list of instructions it runs in order. No time lives here,
/// and nothing else decides what a rank does next.
struct Program {
  std::string schedule;  // its name, for people
  int num_micro_batches = 0;
  bool forward_only = false;   // no backward is expected: inference
  std::vector<int> placement;  // the rank of each stage
  std::vector<std::vector<Instruction>> ranks;

  // Of asynchronous schedules, where weights change while micro-batches are under way.
  /// As `ranks`: the version of the stage's weights that F, R and B use and that REDUCE and STEP
  /// make; -1 for messages. Version 0 is what a run starts with, each STEP of a stage makes the
  /// next. Empty: a synchronous Program, all of which uses the weights it found.
  std::vector<std::vector<int>> versions;
  /// By rank: the oldest version that is needed after this Program, by micro-batches that it leaves
  /// under way or by forwards to come. Empty where versions are.
  std::vector<int> keeps;
  Carried carried;
  bool open = false;  // backwards are left for the next Program to do

  bool is_asynchronous() const { return !versions.empty(); }
  /// -1 in a synchronous Program.
  int version(std::size_t rank, std::size_t step) const {
    return versions.empty() ? -1 : versions[rank][step];
  }
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

/// One instruction of a Program, with its version where it has one: `0F3@2`.
std::string to_text(const Program& program, std::size_t rank, std::size_t step);

/// The text form, which parse_program reads back to an equal Program:
///
///     program 1f1b
///     micro_batches 2
///     placement 0 1
///     rank 0: 0F0 0F1 0B0 0B1
///     rank 1: 1F0 1B0 1F1 1B1
///
/// `forward_only` stands on a line of its own where it holds; `#` starts a comment. Of an
/// asynchronous Program, versions stand behind `@`, and there are lines for the rest of it:
///
///     keeps 0 1         by rank
///     carried 1 0 1     micro-batches under way, then by stage the backwards of them that are done
///     open
///     rank 0: 0F1@1 0B0@0 0STEP@2
std::string to_text(const Program& program);

/// Throws InvalidArgument with the line and what is wrong with it. The Program need not be valid.
Program parse_program(std::string_view text);

}  // namespace pipewright
