#include "pipewright/base/error.h"

#include <fmt/format.h>

namespace pipewright {

Error::Error(std::string_view where, std::string_view what)
    : std::runtime_error(fmt::format("[{}] {}", where, what)) {}

void internal_check(bool holds, const char* what, std::source_location at) {
  if (holds) return;
  throw InternalError("internal", fmt::format("{} ({}:{}); this is a bug in pipewright, please "
                                              "report it with the command that led here",
                                              what, at.file_name(), at.line()));
}

}  // namespace pipewright
