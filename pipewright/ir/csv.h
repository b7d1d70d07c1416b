#pragma once

#include <string>
#include <string_view>

#include "pipewright/ir/program.h"

namespace pipewright {

struct CsvProgram {
  Program program;
  std::string remarks;  // what the file had that a Program does not, in a sentence; empty: nothing
};

/// Reads the CSV of torch.distributed.pipelining: a row a rank, a cell an action, an empty cell
/// where the rank idles; compute-only or with sends and receives. Placement, micro-batches and
/// forward-only are read off the cells. REDUCE_GRAD is REDUCE; an OVERLAP_F_B pair becomes its
/// actions one after the other; UNSHARD, RESHARD, WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD
/// move no work between ranks and have no counterpart: the remarks count them. Throws
/// InvalidArgument with row, cell and what is wrong.
CsvProgram read_csv(std::string_view text);

/// Writes it. A compute-only Program gets an empty cell for every round in which its rank waits, as
/// PyTorch writes them; a lowered one has none. PyTorch knows no R and no STEP: leave those passes
/// out for it; nor versions of the weights: those of an asynchronous Program are not written, so
/// that it reads back as a synchronous one, which its updates make invalid. Throws ScheduleError
/// where the Program cannot run to its end.
std::string write_csv(const Program& program);

}  // namespace pipewright
