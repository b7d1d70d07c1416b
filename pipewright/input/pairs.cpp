#include "pipewright/input/pairs.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"

namespace pipewright {

AlignedFiles::AlignedFiles(const std::string& source, const std::string& target)
    : source_(source), target_(target) {
  if (source_.size() != target_.size()) {
    throw InvalidArgument("data", fmt::format("'{}' has {} lines, '{}' {}; line n of the one must "
                                              "be the translation of line n of the other",
                                              source, source_.size(), target, target_.size()));
  }
  if (source_.size() == 0) {
    throw InvalidArgument("data", fmt::format("'{}' and '{}' are empty", source, target));
  }
}

}  // namespace pipewright
