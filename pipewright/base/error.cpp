#include "pipewright/base/error.h"

#include <fmt/format.h>

namespace pipewright {

Error::Error(std::string_view where, std::string_view what)
    : std::runtime_error(fmt::format("[{}] {}", where, what)) {}

void internal_check(bool holds, const char* what, const char* file, int line) {
  if (holds) return;
  throw InternalError("internal", fmt::format("{} ({}:{}); this is a bug in pipewright, please "
                                              "report it with the command that led here",
                                              what, file, line));
}

}  // namespace pipewright
