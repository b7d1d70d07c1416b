#include "pipewright/input/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

struct Scored {
  double score = 0;
  bool clicked = false;
};

std::vector<Scored> by_score(std::span<const double> scores, std::span<const std::int64_t> labels) {
  if (scores.size() != labels.size()) {
    throw InvalidArgument("auc",
                          fmt::format("{} scores for {} labels", scores.size(), labels.size()));
  }
  std::vector<Scored> rows(scores.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (labels[i] != 0 && labels[i] != 1) {
      throw InvalidArgument("auc", fmt::format("label {} of row {}; use 0 and 1", labels[i], i));
    }
    if (std::isnan(scores[i])) {
      throw InvalidArgument("auc", fmt::format("the score of row {} is no number", i));
    }
    rows[i] = {scores[i], labels[i] == 1};
  }
  std::sort(rows.begin(), rows.end(),
            [](const Scored& a, const Scored& b) { return a.score < b.score; });
  return rows;
}

}  // namespace

std::optional<double> area_under_curve(std::span<const double> scores,
                                       std::span<const std::int64_t> labels) {
  const std::vector<Scored> rows = by_score(scores, labels);
  // In half pairs: 2^63 of them are those of 4 billion rows.
  std::int64_t half_pairs = 0;
  std::int64_t clicked = 0;
  std::int64_t unclicked = 0;  // with a lower score
  for (std::size_t i = 0; i < rows.size();) {
    std::int64_t clicked_here = 0;
    std::int64_t unclicked_here = 0;
    const double score = rows[i].score;
    for (; i < rows.size() && rows[i].score == score; ++i) {
      ++(rows[i].clicked ? clicked_here : unclicked_here);
    }
    half_pairs += clicked_here * (2 * unclicked + unclicked_here);
    clicked += clicked_here;
    unclicked += unclicked_here;
  }
  if (clicked == 0 || unclicked == 0) return {};
  return static_cast<double>(half_pairs) /
         (2 * static_cast<double>(clicked) * static_cast<double>(unclicked));
}

}  // namespace pipewright
