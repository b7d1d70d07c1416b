#include "pipewright/ir/reject.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"

namespace pipewright {

std::string words_for(Place place) {
  return fmt::format("rank {}, step {}", place.rank, place.step);
}

void reject(const Program& program, Place mark, std::string_view reason) {
  throw ScheduleError("validate",
                      fmt::format("{}: {}\n{}", words_for(mark), reason, show_grid(program, mark)));
}

std::optional<Place> find(const Program& program, Instruction wanted) {
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto& list = program.ranks[rank];
    const auto found = std::find(list.begin(), list.end(), wanted);
    if (found != list.end()) return Place{rank, static_cast<std::size_t>(found - list.begin())};
  }
  return std::nullopt;
}

}  // namespace pipewright
