#pragma once

#include <string>
#include <vector>

#include "pipewright/nn/outline.h"
#include "pipewright/train/grid.h"

namespace pipewright {

/// What all processes of a run must have alike, a line each.
std::vector<std::string> description_of(const Strategy& strategy, const Sequence& model,
                                        const Outline& outline, const std::vector<int>& sizes);

/// The first line in which two descriptions differ, in words: what `rank` has and what rank 0 has.
/// Empty: they are alike.
std::string first_difference(const std::vector<std::string>& own,
                             const std::vector<std::string>& first, int rank);

/// Compares with process 0. Throws InvalidArgument where they differ, which the other processes
/// learn: trained on, they would wait for each other, or learn something that nobody asked for.
void check_agreement(const Grid& grid, const Strategy& strategy, const Sequence& model,
                     const Outline& outline, const std::vector<int>& sizes);

}  // namespace pipewright
