#pragma once

#include <string>
#include <vector>

#include "pipewright/graph/batch_analysis.h"
#include "pipewright/graph/graph.h"

namespace pipewright {

/// An operation for people: `%3 = linear(%2, fc1.weight, fc1.bias)`.
struct GraphLine {
  std::string name;                    // linear
  std::vector<std::string> results;    // %3
  std::vector<std::string> arguments;  // %2, fc1.weight, fc1.bias
  std::string source;                  // model.py:12
  bool replicated = false;             // depends on the batch: once for every micro-batch
};

/// How a graph is trained by micro-batches: what does not depend on the batch runs once and is
/// shared, what does is copied for every micro-batch, and what the copies make is aggregated, in
/// the order of the micro-batches.
class MicroBatchView {
 public:
  /// `report`: of this graph.
  MicroBatchView(const Graph& graph, const BatchReport& report);

  /// Every operation of the graph, one a line, with the line of its source.
  std::string before() const;

  /// The three subgraphs for so many micro-batches. Throws InvalidArgument for less than one.
  std::string after(int micro_batches) const;

  /// The same as a picture: one SVG file that needs no other. Of more than four copies the first
  /// three and the last are drawn.
  std::string svg(int micro_batches) const;

  const std::vector<GraphLine>& lines() const { return lines_; }

 private:
  std::vector<std::string> aggregation(int micro_batches) const;
  std::string copied(const std::string& value, const std::string& copy) const;
  std::string line_text(const GraphLine& line, const std::string& copy) const;

  std::vector<GraphLine> lines_;
  std::vector<std::string> outputs_;    // names of the graph's outputs
  std::vector<Spread> output_spreads_;  // by output
  std::vector<std::string> parameters_;
  std::vector<std::string> of_batch_;  // names of values that differ between copies, sorted
};

}  // namespace pipewright
