#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "pipewright/trace/timeline.h"

namespace pipewright {

/// Timelines made by hand, for the tests of what draws them.

inline Span make_span(Kind kind, int micro_batch, double start, double end, int stage = 0) {
  Span span;
  span.kind = kind;
  span.micro_batch = micro_batch;
  span.start = start;
  span.end = end;
  span.stage = stage;
  return span;
}

/// A timeline in which nothing ran.
inline Timeline named(std::string name) {
  Timeline timeline;
  timeline.name = std::move(name);
  return timeline;
}

/// GPipe: all F, then all B (twice as long).
///
///     rank 0 |F0-F1-F2-......B2----B1----B0----|
///     rank 1 |...F0-F1-F2-B2----B1----B0----...|
inline Timeline gpipe_timeline(int ranks, int micro_batches) {
  Timeline timeline;
  timeline.name = "gpipe";
  const double turn = micro_batches + ranks - 1;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Span> spans;
    std::vector<MemoryPoint> memory = {{0, 0}};
    for (int m = 0; m < micro_batches; ++m) {
      spans.push_back(make_span(Kind::kForward, m, rank + m, rank + m + 1, rank));
      memory.push_back({spans.back().end, (m + 1) * 1048576.0});
    }
    for (int m = 0; m < micro_batches; ++m) {
      const double start = turn + 2 * (ranks - 1 - rank + m);
      spans.push_back(make_span(Kind::kBackward, micro_batches - 1 - m, start, start + 2, rank));
      memory.push_back({spans.back().end, (micro_batches - 1 - m) * 1048576.0});
    }
    timeline.ranks.push_back(std::move(spans));
    timeline.memory.push_back(std::move(memory));
  }
  return timeline;
}

/// Two stages a rank in the shape of a V, backward in halves, and an update: every shade and more
/// kinds. The order is no real schedule's.
inline Timeline chunked_timeline(int ranks, int micro_batches) {
  Timeline timeline;
  timeline.name = "chunks";
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Span> spans;
    double now = rank;
    const auto add = [&](Kind kind, int m, int stage, double length) {
      spans.push_back(make_span(kind, m, now, now + length, stage));
      now += length;
    };
    for (int m = 0; m < micro_batches; ++m) {
      for (const int stage : {rank, 2 * ranks - 1 - rank}) {
        add(Kind::kForward, m, stage, 0.5);
        add(Kind::kBackwardInput, m, stage, 0.5);
        add(Kind::kBackwardWeight, m, stage, 0.5);
      }
      now += 0.5;
    }
    spans[spans.size() / 2].link_wait = 0.25;
    add(Kind::kReduce, -1, rank, 1);
    add(Kind::kStep, -1, rank, 0.5);
    timeline.ranks.push_back(std::move(spans));
  }
  return timeline;
}

/// 1f1b that goes on: an update after each backward, later ranks with newer versions.
///
///     rank 0 |F0 F1 .. B0 F2 B1 F3 B2 ...
///     rank 1 |.. F0 B0 F1 B1 F2 B2 ...
inline Timeline asynchronous_timeline(int micro_batches) {
  Timeline timeline;
  timeline.name = "pipedream";
  timeline.ranks.resize(2);
  for (int rank = 0; rank < 2; ++rank) {
    auto& spans = timeline.ranks[static_cast<std::size_t>(rank)];
    const auto add = [&](Kind kind, int m, double start, double end, int version) {
      spans.push_back(make_span(kind, m, start, end, rank));
      spans.back().version = version;
    };
    if (rank == 0) add(Kind::kForward, 0, 0, 1, 0);
    for (int m = 0; m < micro_batches; ++m) {
      const double start = 4 * m + (rank == 0 ? 2.5 : 1);
      if (rank == 0 && m + 1 < micro_batches) add(Kind::kForward, m + 1, start, start + 1, m);
      if (rank == 1) add(Kind::kForward, m, start, start + 1, m);
      const double back = start + 1.25;
      add(Kind::kBackward, m, back, back + 2, rank == 1 ? m : std::max(0, m - 1));
      add(Kind::kStep, -1, back + 2, back + 2.5, m + 1);
    }
  }
  return timeline;
}

inline std::size_t num_spans(const Timeline& timeline) {
  std::size_t count = 0;
  for (const auto& rank : timeline.ranks) count += rank.size();
  return count;
}

}  // namespace pipewright
