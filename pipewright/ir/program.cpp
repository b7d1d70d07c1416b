#include "pipewright/ir/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"

namespace pipewright {
namespace {

[[noreturn]] void refuse(std::size_t line, std::string_view why) {
  throw InvalidArgument("program", fmt::format("line {}: {}", line, why));
}

/// Takes the next word off the front; empty at the end.
std::string_view take_word(std::string_view* text) {
  const std::size_t start = std::min(text->find_first_not_of(" \t\r"), text->size());
  const std::size_t end = std::min(text->find_first_of(" \t\r", start), text->size());
  const std::string_view word = text->substr(start, end - start);
  text->remove_prefix(end);
  return word;
}

int parse_number(std::string_view word, std::size_t line, std::string_view what, int most) {
  return static_cast<int>(
      parse_integer(word, fmt::format("program line {}: {}", line, what), 0, most));
}

void parse_placement(std::string_view rest, std::size_t line, Program* program) {
  for (auto word = take_word(&rest); !word.empty(); word = take_word(&rest)) {
    program->placement.push_back(
        parse_number(word, line, "rank of a stage", Instruction::kMaxStage));
  }
}

void parse_rank(std::string_view rest, std::size_t line, Program* program) {
  const std::string_view label = take_word(&rest);
  if (label != fmt::format("{}:", program->ranks.size())) {
    refuse(line, fmt::format("expected 'rank {}:', found 'rank {}'; ranks are listed in order",
                             program->ranks.size(), label.substr(0, 20)));
  }
  std::vector<Instruction> list;
  for (auto word = take_word(&rest); !word.empty(); word = take_word(&rest)) {
    try {
      list.push_back(parse_instruction(word));
    } catch (const InvalidArgument& error) {
      refuse(line, fmt::format("instruction {}: {}", list.size(), error.what()));
    }
  }
  program->ranks.push_back(std::move(list));
}

}  // namespace

int Program::num_chunks() const {
  std::vector<int> stages(ranks.size());
  int most = 0;
  for (const int rank : placement) {
    if (rank < 0 || rank >= num_ranks()) continue;
    most = std::max(most, ++stages[static_cast<std::size_t>(rank)]);
  }
  return most;
}

std::size_t Program::num_instructions() const {
  std::size_t count = 0;
  for (const auto& list : ranks) count += list.size();
  return count;
}

std::size_t Program::num_compute_instructions() const {
  std::ptrdiff_t count = 0;
  for (const auto& list : ranks) {
    count +=
        std::count_if(list.begin(), list.end(), [](Instruction i) { return is_compute(i.kind()); });
  }
  return static_cast<std::size_t>(count);
}

bool Program::is_lowered() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [](Instruction i) { return is_send(i.kind()) || is_recv(i.kind()); });
  });
}

std::string to_text(const Program& program) {
  std::string text =
      fmt::format("program {}\nmicro_batches {}\n", program.schedule, program.num_micro_batches);
  if (program.forward_only) text += "forward_only\n";
  text += fmt::format("placement {}\n", fmt::join(program.placement, " "));
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    fmt::format_to(std::back_inserter(text), "rank {}:", rank);
    for (const Instruction instruction : program.ranks[rank]) {
      text += ' ';
      text += to_text(instruction);
    }
    text += '\n';
  }
  return text;
}

Program parse_program(std::string_view text) {
  Program program;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line = line.substr(0, line.find('#'));
    ++number;

    const std::string_view word = take_word(&line);
    if (word.empty()) continue;
    if (word == "program") {
      program.schedule = take_word(&line);
    } else if (word == "micro_batches") {
      program.num_micro_batches =
          parse_number(take_word(&line), number, "micro_batches", Instruction::kMaxMicroBatch + 1);
    } else if (word == "forward_only") {
      program.forward_only = true;
    } else if (word == "placement") {
      parse_placement(line, number, &program);
      continue;
    } else if (word == "rank") {
      parse_rank(line, number, &program);
      continue;
    } else {
      refuse(number,
             fmt::format("'{}' is none of program, micro_batches, forward_only, placement, rank",
                         word.substr(0, 20)));
    }
    if (const auto more = take_word(&line); !more.empty()) {
      refuse(number, fmt::format("'{}' is one word too many", more.substr(0, 20)));
    }
  }
  if (program.ranks.empty()) throw InvalidArgument("program", "no line 'rank 0: ...' was found");
  return program;
}

}  // namespace pipewright
