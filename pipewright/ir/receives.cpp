#include "pipewright/ir/receives.h"

#include <algorithm>
#include <numeric>

namespace pipewright {
namespace {

bool is_from_higher(const Program& program, Instruction i, int rank) {
  if (!is_recv(i.kind())) return false;
  const int from = i.stage() + (i.kind() == Kind::kRecvForward ? -1 : 1);
  return program.placement[static_cast<std::size_t>(from)] > rank;
}

}  // namespace

std::vector<std::size_t> early_receives(const Program& program, int rank) {
  const auto& list = program.ranks[static_cast<std::size_t>(rank)];
  std::vector<std::size_t> order(list.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (!is_from_higher(program, list[order[k]], rank)) continue;
    std::size_t after = k;  // the instruction that it is listed after
    while (after > 0 && !is_compute(list[order[after - 1]].kind())) --after;
    if (after == 0) continue;
    const auto begin = order.begin();
    std::rotate(begin + static_cast<std::ptrdiff_t>(after) - 1,
                begin + static_cast<std::ptrdiff_t>(k), begin + static_cast<std::ptrdiff_t>(k) + 1);
  }
  return order;
}

}  // namespace pipewright
