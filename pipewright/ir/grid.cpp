#include "pipewright/ir/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace pipewright {
namespace {

constexpr std::size_t kMostRanks = 16;
constexpr std::size_t kMostSteps = 12;

struct Window {
  std::size_t from;
  std::size_t to;
};

/// At most `most` of [0, size), with `centre` among them.
Window window_around(std::size_t centre, std::size_t most, std::size_t size) {
  if (size <= most) return {0, size};
  std::size_t from = centre > most / 2 ? centre - most / 2 : 0;
  from = std::min(from, size - most);
  return {from, from + most};
}

std::string cell_text(const Program& program, std::size_t rank, std::size_t step, bool marked) {
  const std::string text = step < program.ranks[rank].size() ? to_text(program, rank, step) : "";
  return marked ? fmt::format("[{}]", text.empty() ? "missing" : text) : fmt::format(" {} ", text);
}

}  // namespace

std::string show_grid(const Program& program, Place mark) {
  std::size_t num_steps = mark.step + 1;
  for (const auto& list : program.ranks) num_steps = std::max(num_steps, list.size());
  const Window ranks = window_around(mark.rank, kMostRanks, program.ranks.size());
  const Window steps = window_around(mark.step, kMostSteps, num_steps);

  std::vector<std::vector<std::string>> columns;
  for (std::size_t step = steps.from; step < steps.to; ++step) {
    std::vector<std::string> column = {fmt::format(" step {} ", step)};
    for (std::size_t rank = ranks.from; rank < ranks.to; ++rank) {
      column.push_back(cell_text(program, rank, step, rank == mark.rank && step == mark.step));
    }
    columns.push_back(std::move(column));
  }

  const std::string before = steps.from > 0 ? "... " : "";
  const std::string after = steps.to < num_steps ? " ..." : "";
  std::string grid;
  if (ranks.from > 0) grid += fmt::format("  ... {} ranks before\n", ranks.from);
  for (std::size_t row = 0; row <= ranks.to - ranks.from; ++row) {
    const std::size_t rank = ranks.from + row - 1;
    std::string line =
        fmt::format("  {:<10}{}", row == 0 ? "" : fmt::format("rank {}", rank), before);
    for (const auto& column : columns) {
      const auto widest =
          std::max_element(column.begin(), column.end(),
                           [](const auto& a, const auto& b) { return a.size() < b.size(); });
      line += fmt::format("{:<{}} ", column[row], widest->size());
    }
    line += row > 0 && program.ranks[rank].size() > steps.to ? after : "";
    line.erase(line.find_last_not_of(' ') + 1);
    grid += line + "\n";
  }
  if (ranks.to < program.ranks.size()) {
    grid += fmt::format("  ... {} ranks after\n", program.ranks.size() - ranks.to);
  }
  return grid;
}

}  // namespace pipewright
