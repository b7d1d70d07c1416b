#pragma once

#include <string>
#include <vector>

#include "benchmarks/pipeline/cell.h"

namespace pipewright::bench {

/// A cell and what it took; of the peer a step's seconds alone.
struct Line {
  std::string who;  // "ours" or "peer"
  Cell cell;
  Measured measured;             // the fastest round
  std::vector<Measured> rounds;  // all of them

  double bubble() const { return 1 - measured.busy / (cell.ranks * measured.step); }
};

/// Every cell of ours, with its bubble beside the formula's and its prediction.
std::string all_cells(const std::vector<Line>& lines);

/// Steps beside what the cores do where nothing waits, as the schedule would have it: medians of
/// the rounds, in which both took turns.
std::string beside_the_cores(const std::vector<Line>& lines);

/// For every K and M the fastest of ours and of the peer, as throughput over that of K = 2, M = 1,
/// beside GPipe's own.
std::string against_the_paper(const std::vector<Line>& lines);

/// How far predictions were off: the median and the worst.
std::string prediction_errors(const std::vector<Line>& lines);

/// Against the paper and the peer, for `make bench`.
void add_headlines(const std::vector<Line>& lines);

/// Throughput over ranks at the largest M.
std::string plot(const std::vector<Line>& lines, const Sizes& sizes);

nlohmann::json to_json(const std::vector<Line>& lines);

}  // namespace pipewright::bench
