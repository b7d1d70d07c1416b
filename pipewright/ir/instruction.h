#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pipewright/base/kind.h"

namespace pipewright {

/// Ids as their own types: a stage is not taken for a micro-batch.
struct Stage {
  int index;
};
struct MicroBatch {
  int index;
};

/// One instruction of a rank's list: 8 bytes, since a Program may have tens of millions.
/// Text form: stage, kind, micro-batch (`0F3`, `1SEND_F3`); REDUCE and STEP have no micro-batch
/// (`2STEP`).
class Instruction {
 public:
  static constexpr int kMaxStage = (1 << 24) - 1;
  static constexpr int kMaxMicroBatch = (1 << 30) - 1;

  constexpr Instruction(Kind kind, Stage stage, MicroBatch micro_batch)
      : kind_(static_cast<std::uint32_t>(kind)),
        stage_(static_cast<std::uint32_t>(stage.index)),
        micro_batch_(micro_batch.index) {}
  constexpr Instruction(Kind kind, Stage stage) : Instruction(kind, stage, MicroBatch{-1}) {}

  constexpr Kind kind() const { return static_cast<Kind>(kind_); }
  constexpr int stage() const { return static_cast<int>(stage_); }
  constexpr int micro_batch() const { return micro_batch_; }  // -1 for REDUCE and STEP

  friend constexpr bool operator==(Instruction a, Instruction b) {
    return a.kind_ == b.kind_ && a.stage_ == b.stage_ && a.micro_batch_ == b.micro_batch_;
  }

 private:
  std::uint32_t kind_ : 8;
  std::uint32_t stage_ : 24;
  std::int32_t micro_batch_;
};
static_assert(sizeof(Instruction) == 8);

std::string to_text(Instruction instruction);

/// Reads the text form. Throws InvalidArgument saying what is wrong with it.
Instruction parse_instruction(std::string_view text);

}  // namespace pipewright
