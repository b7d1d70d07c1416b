#include "pipewright/trace/breakdown.h"

#include <fmt/format.h>

#include <algorithm>

namespace pipewright {
namespace {

double own_work(const RankTimes& rank) { return rank.compute + rank.recompute; }

/// Takes up to `wanted` out of `left`.
double take(double wanted, double& left) {
  const double taken = std::clamp(wanted, 0.0, left);
  left -= taken;
  return taken;
}

std::string percent(double part, double total) {
  return part == 0 || !(total > 0) ? "-" : fmt::format("{:.1f}%", 100 * part / total);
}

}  // namespace

Breakdown breakdown(const StepTimes& times) { return breakdown(times, times.step_time()); }

Breakdown breakdown(const StepTimes& times, double step_time) {
  double most_work = 0;
  for (const RankTimes& rank : times.ranks()) {
    most_work = std::max(most_work, own_work(rank));
    step_time = std::max(step_time, rank.busy());
  }

  Breakdown sum;
  for (const RankTimes& rank : times.ranks()) {
    double idle = std::max(0.0, step_time - rank.busy());
    sum.compute += rank.compute;
    sum.recompute += rank.recompute;
    sum.update += rank.update;
    sum.communication += rank.reduce + take(rank.link_wait, idle);
    sum.imbalance += take(most_work - own_work(rank), idle);
    sum.bubble += idle;
  }
  sum.total = static_cast<double>(times.ranks().size()) * step_time;
  return sum;
}

std::string breakdown_table(std::span<const BreakdownRow> rows) {
  std::size_t name_width = 0;
  for (const BreakdownRow& row : rows) name_width = std::max(name_width, row.name.size());

  std::string out = fmt::format("{:{}}", "", name_width);
  for (const BreakdownPart& part : kBreakdownParts) {
    out += fmt::format("  {:>{}}", part.name, std::max<std::size_t>(part.name.size(), 6));
  }
  out += '\n';
  for (const BreakdownRow& row : rows) {
    out += fmt::format("{:{}}", row.name, name_width);
    for (const BreakdownPart& part : kBreakdownParts) {
      out += fmt::format("  {:>{}}", percent(row.parts.*part.value, row.parts.total),
                         std::max<std::size_t>(part.name.size(), 6));
    }
    out += '\n';
  }
  return out;
}

}  // namespace pipewright
