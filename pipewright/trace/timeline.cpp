#include "pipewright/trace/timeline.h"

#include <algorithm>

namespace pipewright {

void RankTimes::add(const Span& span) {
  first_start = any ? std::min(first_start, span.start) : span.start;
  last_end = any ? std::max(last_end, span.end) : span.end;
  any = true;
  link_wait += span.link_wait;
  if (span.kind == Kind::kRecompute) {
    recompute += span.duration();
  } else if (is_compute(span.kind)) {
    compute += span.duration();
  } else if (span.kind == Kind::kReduce) {
    reduce += span.duration();
  } else if (span.kind == Kind::kStep) {
    update += span.duration();
  } else {
    link_wait += span.duration();
  }
}

StepTimes::StepTimes(const Timeline& timeline) : ranks_(timeline.ranks.size()) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const Span& span : timeline.ranks[rank]) add(rank, span);
  }
}

double StepTimes::step_time() const {
  RankTimes all;
  for (const RankTimes& rank : ranks_) {
    if (!rank.any) continue;
    all.first_start = all.any ? std::min(all.first_start, rank.first_start) : rank.first_start;
    all.last_end = all.any ? std::max(all.last_end, rank.last_end) : rank.last_end;
    all.any = true;
  }
  return all.span();
}

double StepTimes::busy() const {
  double sum = 0;
  for (const RankTimes& rank : ranks_) sum += rank.busy();
  return sum;
}

double StepTimes::bubble_fraction() const {
  const double total = static_cast<double>(ranks_.size()) * step_time();
  return total > 0 ? 1 - busy() / total : 0;
}

}  // namespace pipewright
