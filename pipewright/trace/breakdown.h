#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "pipewright/trace/timeline.h"

namespace pipewright {

/// Where the time of a step went, summed over ranks: total = ranks * step time, and the six parts
/// sum to it. Of a rank's time,
///
///     |-- F, B, I, W --|-- R --|-- STEP --|-- REDUCE --|------------- idle -------------|
///      compute          recompute  update   communication  | imbalance | bubble
///                                           (and link wait)
///
/// - compute, recompute, update: the rank was busy with F, B, I, W; with R; with STEP.
/// - communication: REDUCE, and as much of the idle time as its inputs were on a link.
/// - imbalance: of the idle time then left, as much as the rank with the most compute + recompute
///   has more of it than this one. A better partition may win it back.
/// - bubble: the rest. The schedule's own: another schedule or more micro-batches may win it back.
///
/// StepTimes::bubble_fraction counts all idle time, so it is at least bubble / total.
struct Breakdown {
  double compute = 0;
  double recompute = 0;
  double bubble = 0;
  double imbalance = 0;
  double communication = 0;
  double update = 0;
  double total = 0;
};

Breakdown breakdown(const StepTimes& times);
/// Of a step that takes `step_time`, one after the other, where those of an asynchronous schedule
/// overlap: its spans lie between those of others.
Breakdown breakdown(const StepTimes& times, double step_time);

/// A part of a Breakdown by its name, for those who list all of them.
struct BreakdownPart {
  std::string_view name;
  double Breakdown::*value;
};

/// The parts in the order they are listed and drawn: useful work first, waiting last.
inline constexpr std::array<BreakdownPart, 6> kBreakdownParts = {{
    {"compute", &Breakdown::compute},
    {"recompute", &Breakdown::recompute},
    {"update", &Breakdown::update},
    {"communication", &Breakdown::communication},
    {"imbalance", &Breakdown::imbalance},
    {"bubble", &Breakdown::bubble},
}};

struct BreakdownRow {
  std::string name;  // of the timeline
  Breakdown parts;
};

/// A table for the terminal: a line a row, each part in percent of the row's total, `-` where it is
/// nothing at all.
std::string breakdown_table(std::span<const BreakdownRow> rows);

}  // namespace pipewright
