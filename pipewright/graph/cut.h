#pragma once

#include <string>
#include <vector>

#include "pipewright/graph/batch_analysis.h"
#include "pipewright/graph/graph.h"
#include "pipewright/nn/loss.h"
#include "pipewright/nn/sequence.h"

namespace pipewright {

struct CutOptions {
  /// How many values may go from one side of a cut to the other, inputs that wait for their use not
  /// counted. 0: the least number that leaves `wanted_layers`, up to 8.
  int most_crossing = 0;
  int wanted_layers = 8;
};

/// Where a graph was cut: the layer after the cut, and what crosses.
struct CutPoint {
  std::string layer;
  int crossing = 0;
};

struct CutModel {
  Sequence model;
  std::vector<CutPoint> points;
};

/// Cuts the graph between operations with parameters, where few tensors cross, into layers that
/// everything that takes a Sequence can partition, pipeline and recompute. The first layer takes
/// the graph's inputs, the last returns its outputs. What several layers use goes as skips from one
/// to the next that needs it; parameters that several use are tied. Loops and branches stay whole.
/// What depends on parameters alone is computed in each layer that needs it.
CutModel cut(const Graph& graph, const CutOptions& options = {});

struct CutLoss {
  Sequence model;
  Loss loss;
};

/// The same for a graph that returns its loss, as one number. How it reduces the batch is taken
/// from the report; micro-batches then count by their share. A Batch's targets are not looked at
/// but for their rows: give any input again. Throws InvalidArgument where the loss is not a mean,
/// and for a sum unless `divide_sum` says that it is to be divided by the rows, as the trainer
/// does.
CutLoss cut_with_loss(const Graph& graph, const BatchReport& report, const CutOptions& options = {},
                      bool divide_sum = false);

}  // namespace pipewright
