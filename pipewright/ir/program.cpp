#include "pipewright/ir/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <iterator>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"

namespace pipewright {
namespace {

constexpr int kMostVersion = INT_MAX - 1;

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

/// The numbers that are left of a line.
std::vector<int> parse_numbers(std::string_view rest, std::size_t line, std::string_view what,
                               int most) {
  std::vector<int> numbers;
  for (auto word = take_word(&rest); !word.empty(); word = take_word(&rest)) {
    numbers.push_back(parse_number(word, line, what, most));
  }
  return numbers;
}

void parse_keeps(std::string_view rest, std::size_t line, Program* program) {
  program->keeps = parse_numbers(rest, line, "version to keep", kMostVersion);
  if (program->keeps.empty()) refuse(line, "'keeps' names no version; write one a rank");
}

void parse_carried(std::string_view rest, std::size_t line, Program* program) {
  const int most = Instruction::kMaxMicroBatch;
  program->carried.micro_batches =
      parse_number(take_word(&rest), line, "carried micro-batches", most);
  program->carried.backwards = parse_numbers(rest, line, "backwards of a stage", most);
}

/// `0F3` or `0F3@2`.
void parse_step(std::string_view word, std::size_t line, std::vector<Instruction>* list,
                std::vector<int>* versions) {
  const std::size_t at = word.find('@');
  try {
    list->push_back(parse_instruction(word.substr(0, at)));
  } catch (const InvalidArgument& error) {
    refuse(line, fmt::format("instruction {}: {}", list->size(), error.what()));
  }
  versions->push_back(at == std::string_view::npos
                          ? -1
                          : parse_number(word.substr(at + 1), line, "version", kMostVersion));
}

void parse_rank(std::string_view rest, std::size_t line, Program* program) {
  const std::string_view label = take_word(&rest);
  if (label != fmt::format("{}:", program->ranks.size())) {
    refuse(line, fmt::format("expected 'rank {}:', found 'rank {}'; ranks are listed in order",
                             program->ranks.size(), label.substr(0, 20)));
  }
  std::vector<Instruction> list;
  std::vector<int> versions;
  for (auto word = take_word(&rest); !word.empty(); word = take_word(&rest)) {
    parse_step(word, line, &list, &versions);
  }
  program->ranks.push_back(std::move(list));
  program->versions.push_back(std::move(versions));
}

/// Lines whose rest is a list; false for another word.
bool parse_list(std::string_view word, std::string_view rest, std::size_t line, Program* program) {
  if (word == "placement") {
    for (const int rank : parse_numbers(rest, line, "rank of a stage", Instruction::kMaxStage)) {
      program->placement.push_back(rank);
    }
  } else if (word == "rank") {
    parse_rank(rest, line, program);
  } else if (word == "keeps") {
    parse_keeps(rest, line, program);
  } else if (word == "carried") {
    parse_carried(rest, line, program);
  } else {
    return false;
  }
  return true;
}

/// A Program is asynchronous where it keeps versions or uses one.
void drop_no_versions(Program* program) {
  const bool any = std::any_of(program->versions.begin(), program->versions.end(), [](auto& list) {
    return std::any_of(list.begin(), list.end(), [](int version) { return version >= 0; });
  });
  if (!any && program->keeps.empty()) program->versions.clear();
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

std::string to_text(const Program& program, std::size_t rank, std::size_t step) {
  const std::string text = to_text(program.ranks[rank][step]);
  const int version = program.version(rank, step);
  return version < 0 ? text : fmt::format("{}@{}", text, version);
}

std::string to_text(const Program& program) {
  std::string text =
      fmt::format("program {}\nmicro_batches {}\n", program.schedule, program.num_micro_batches);
  if (program.forward_only) text += "forward_only\n";
  if (!program.keeps.empty()) text += fmt::format("keeps {}\n", fmt::join(program.keeps, " "));
  if (program.carried != Carried{}) {
    text += fmt::format("carried {} {}\n", program.carried.micro_batches,
                        fmt::join(program.carried.backwards, " "));
  }
  if (program.open) text += "open\n";
  text += fmt::format("placement {}\n", fmt::join(program.placement, " "));
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    fmt::format_to(std::back_inserter(text), "rank {}:", rank);
    for (std::size_t step = 0; step < program.ranks[rank].size(); ++step) {
      text += ' ';
      text += to_text(program, rank, step);
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
    if (word.empty() || parse_list(word, line, number, &program)) continue;
    if (word == "program") {
      program.schedule = take_word(&line);
    } else if (word == "micro_batches") {
      program.num_micro_batches =
          parse_number(take_word(&line), number, "micro_batches", Instruction::kMaxMicroBatch + 1);
    } else if (word == "forward_only") {
      program.forward_only = true;
    } else if (word == "open") {
      program.open = true;
    } else {
      refuse(number, fmt::format("'{}' is none of program, micro_batches, forward_only, keeps, "
                                 "carried, open, placement, rank",
                                 word.substr(0, 20)));
    }
    if (const auto more = take_word(&line); !more.empty()) {
      refuse(number, fmt::format("'{}' is one word too many", more.substr(0, 20)));
    }
  }
  if (program.ranks.empty()) throw InvalidArgument("program", "no line 'rank 0: ...' was found");
  drop_no_versions(&program);
  return program;
}

}  // namespace pipewright
