#include "pipewright/ir/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "pipewright/base/error.h"
#include "pipewright/ir/walk.h"

namespace pipewright {
namespace {

constexpr std::string_view kReduceOfTorch = "REDUCE_GRAD";
constexpr std::string_view kOverlapOfTorch = "OVERLAP_F_B";
constexpr std::array<std::string_view, 5> kNoCounterpart = {"UNSHARD", "RESHARD", "WAIT_SEND_F",
                                                            "WAIT_SEND_B", "WAIT_REDUCE_GRAD"};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t start = std::min(text.find_first_not_of(kSpace), text.size());
  text.remove_prefix(start);
  text.remove_suffix(text.size() - (text.find_last_not_of(kSpace) + 1));
  return text;
}

/// The text up to `separator`, which is taken off the front with it.
std::string_view take_until(std::string_view* text, char separator) {
  const std::size_t end = text->find(separator);
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return part;
}

class Reader {
 public:
  CsvProgram read(std::string_view text) {
    while (!text.empty()) {
      read_row(take_until(&text, '\n'));
    }
    auto& ranks = result_.program.ranks;
    while (!ranks.empty() && ranks.back().empty()) ranks.pop_back();
    if (ranks.empty())
      throw InvalidArgument("csv", "no action was found; a row is a rank: 0F0,0F1,,0B0");
    finish();
    return std::move(result_);
  }

 private:
  void read_row(std::string_view row) {
    auto& ranks = result_.program.ranks;
    ranks.emplace_back();
    std::size_t cell = 0;
    while (!row.empty()) {
      const std::string_view text = trimmed(take_until(&row, ','));
      try {
        read_cell(text, &ranks.back());
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(
            "csv", fmt::format("row {}, cell {}: {}", ranks.size(), cell + 1, error.what()));
      }
      ++cell;
    }
  }

  void read_cell(std::string_view text, std::vector<Instruction>* list) {
    if (text.empty()) return;
    if (text.front() == '(' && text.ends_with(kOverlapOfTorch)) {
      std::string_view pair = text.substr(1);
      std::string_view actions = take_until(&pair, ')');
      if (pair == kOverlapOfTorch) {
        ++ignored_[kOverlapOfTorch];
        while (!actions.empty()) read_cell(trimmed(take_until(&actions, ';')), list);
        return;
      }
    }
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string_view name = text.substr(digits);
    const auto known = std::find(kNoCounterpart.begin(), kNoCounterpart.end(),
                                 name.substr(0, name.find_last_not_of("0123456789") + 1));
    if (digits > 0 && known != kNoCounterpart.end()) {
      ++ignored_[*known];
    } else if (digits > 0 && name == kReduceOfTorch) {
      list->push_back(
          parse_instruction(fmt::format("{}{}", text.substr(0, digits), kind_name(Kind::kReduce))));
    } else {
      list->push_back(parse_instruction(text));
    }
  }

  /// Reads placement, micro-batches and forward-only off the instructions.
  void finish() {
    Program& program = result_.program;
    program.schedule = "csv";
    int last_stage = 0;
    int last_micro_batch = 0;
    program.forward_only = true;
    for (const auto& list : program.ranks) {
      for (const Instruction i : list) {
        last_stage = std::max(last_stage, i.stage());
        last_micro_batch = std::max(last_micro_batch, i.micro_batch());
        if (is_backward(i.kind())) program.forward_only = false;
      }
    }
    const std::size_t count = program.num_instructions();
    for (const auto& [what, last] :
         {std::pair{"stage", last_stage}, {"micro-batch", last_micro_batch}}) {
      if (static_cast<std::size_t>(last) < count) continue;
      throw InvalidArgument(
          "csv", fmt::format("{0} {1} occurs, but there are only {2} actions; {0}s count from "
                             "0 without gaps",
                             what, last, count));
    }
    program.num_micro_batches = last_micro_batch + 1;
    program.placement.assign(static_cast<std::size_t>(last_stage) + 1, -1);
    for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
      for (const Instruction i : program.ranks[rank]) {
        int& owner = program.placement[static_cast<std::size_t>(i.stage())];
        if (owner < 0) owner = static_cast<int>(rank);
      }
    }
    for (const auto& [name, times] : ignored_) {
      result_.remarks += fmt::format("{}{} {}", result_.remarks.empty() ? "" : ", ", times, name);
    }
    if (!result_.remarks.empty()) {
      result_.remarks =
          "the file has actions of PyTorch without a counterpart here: " + result_.remarks;
    }
  }

  CsvProgram result_;
  std::map<std::string_view, int> ignored_;
};

std::string cell_of(Instruction instruction) {
  if (instruction.kind() == Kind::kReduce)
    return fmt::format("{}{}", instruction.stage(), kReduceOfTorch);
  return to_text(instruction);
}

}  // namespace

CsvProgram read_csv(std::string_view text) { return Reader().read(text); }

std::string write_csv(const Program& program) {
  const bool aligned = !program.is_lowered();
  std::vector<std::string> rows(program.ranks.size());
  std::vector<std::int64_t> cells(program.ranks.size());
  Walk walk(program, Sends::kReturnAtOnce, WalkOrder::kRounds);
  while (const auto visit = walk.next()) {
    std::string& row = rows[visit->rank];
    std::int64_t& cell = cells[visit->rank];
    const std::int64_t column = aligned ? visit->round : cell;
    row.append(static_cast<std::size_t>(column - std::max<std::int64_t>(cell - 1, 0)), ',');
    row += cell_of(visit->instruction);
    cell = column + 1;
  }
  if (!walk.finished()) {
    throw ScheduleError("csv", "the program cannot run to its end; validate() says why");
  }
  std::string text;
  for (const std::string& row : rows) text += row + "\n";
  return text;
}

}  // namespace pipewright
