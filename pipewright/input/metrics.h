#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace pipewright {

/// The area under the ROC curve: of all pairs of a clicked and an unclicked row, the share in which
/// the clicked one has the higher score, equal scores counting half. Exact: counted in whole
/// numbers. Labels are 0 or 1. None where all labels are the same. Throws InvalidArgument for other
/// labels, scores that are no numbers, and lists of different length.
std::optional<double> area_under_curve(std::span<const double> scores,
                                       std::span<const std::int64_t> labels);

}  // namespace pipewright
