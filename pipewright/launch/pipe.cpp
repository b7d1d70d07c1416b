#include "pipewright/launch/pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "pipewright/base/error.h"

namespace pipewright::launch {
namespace {

UniqueFd above_standard_streams(UniqueFd fd) {
  if (fd.get() > STDERR_FILENO) return fd;
  UniqueFd moved(fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!moved.open()) throw_system_error("open a pipe");
  return moved;
}

}  // namespace

void throw_system_error(const std::string& doing) {
  const bool full = errno == EMFILE || errno == ENFILE;
  throw Error("launch", fmt::format("cannot {}: {}{}", doing, std::strerror(errno),
                                    full ? "; allow more open files (ulimit -n)" : ""));
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_system_error("open a pipe");
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  pipe.read = above_standard_streams(std::move(pipe.read));
  pipe.write = above_standard_streams(std::move(pipe.write));
  return pipe;
}

}  // namespace pipewright::launch
