#include "pipewright/ir/instruction.h"

#include <fmt/format.h>

#include <charconv>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t count_digits(std::string_view text, std::size_t from) {
  std::size_t to = from;
  while (to < text.size() && is_digit(text[to])) ++to;
  return to - from;
}

/// A number within [0, most], or -1.
int small_number(std::string_view digits, int most) {
  int value = -1;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return status == std::errc() && value <= most ? value : -1;
}

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  constexpr std::size_t kShown = 40;
  throw InvalidArgument(
      "instruction", fmt::format("'{}{}' {}; write stage, instruction, micro-batch as in 0F3",
                                 text.substr(0, kShown), text.size() > kShown ? "..." : "", why));
}

}  // namespace

std::string to_text(Instruction instruction) {
  if (is_once_a_step(instruction.kind())) {
    return fmt::format("{}{}", instruction.stage(), kind_name(instruction.kind()));
  }
  return fmt::format("{}{}{}", instruction.stage(), kind_name(instruction.kind()),
                     instruction.micro_batch());
}

Instruction parse_instruction(std::string_view text) {
  const std::size_t stage_digits = count_digits(text, 0);
  if (stage_digits == 0) refuse(text, "does not start with a stage number");
  std::size_t name_end = text.size();
  while (name_end > stage_digits && is_digit(text[name_end - 1])) --name_end;

  const auto kind = parse_kind(text.substr(stage_digits, name_end - stage_digits));
  if (!kind) {
    refuse(text, "names no instruction (F B I W R SEND_F RECV_F SEND_B RECV_B REDUCE STEP)");
  }
  const int stage = small_number(text.substr(0, stage_digits), Instruction::kMaxStage);
  if (stage < 0) refuse(text, fmt::format("has a stage above {}", Instruction::kMaxStage));

  const std::string_view last = text.substr(name_end);
  if (is_once_a_step(*kind)) {
    if (!last.empty()) refuse(text, "has a micro-batch, but runs once a step");
    return Instruction(*kind, Stage{stage});
  }
  if (last.empty()) refuse(text, "has no micro-batch");
  const int micro_batch = small_number(last, Instruction::kMaxMicroBatch);
  if (micro_batch < 0) {
    refuse(text, fmt::format("has a micro-batch above {}", Instruction::kMaxMicroBatch));
  }
  return Instruction(*kind, Stage{stage}, MicroBatch{micro_batch});
}

}  // namespace pipewright
