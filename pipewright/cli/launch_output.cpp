#include "pipewright/cli/launch_output.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace pipewright::cli {
namespace {

constexpr std::size_t kMostWaiting = 1 << 20;
/// A pipe that poll() calls writable takes this much without blocking.
constexpr std::size_t kChunk = 4096;
/// For what still waits when the program ends.
constexpr int kLastMilliseconds = 2000;

bool is_writable(int fd, int milliseconds) {
  pollfd poll_fd{.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&poll_fd, 1, milliseconds) > 0;
}

}  // namespace

LaunchOutput::LaunchOutput()
    : same_terminal_(isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0) {}

LaunchOutput::~LaunchOutput() {
  for (Queue& queue : queues_) {
    while (!queue.waiting.empty() && is_writable(queue.fd, kLastMilliseconds)) write_some(queue);
  }
}

void LaunchOutput::message(std::string_view text) {
  bool& out_within_line = queue(launch::Stream::kOut).within_line;
  const bool cut = queue(launch::Stream::kErr).within_line || (same_terminal_ && out_within_line);
  if (same_terminal_) out_within_line = false;
  output(launch::Stream::kErr, fmt::format("{}pipewright launch: {}\n", cut ? "\n" : "", text));
}

void LaunchOutput::output(launch::Stream stream, std::string_view bytes) {
  Queue& target = queue(stream);
  if (bytes.empty() || target.closed) return;
  target.within_line = bytes.back() != '\n';
  target.waiting.append(bytes);
  while (!target.waiting.empty() && is_writable(target.fd, 0)) write_some(target);
}

int LaunchOutput::waiting_fd(launch::Stream stream) const {
  return queue(stream).waiting.empty() ? -1 : queue(stream).fd;
}

void LaunchOutput::write_waiting(launch::Stream stream) { write_some(queue(stream)); }

bool LaunchOutput::is_full(launch::Stream stream) const {
  return queue(stream).waiting.size() >= kMostWaiting;
}

void LaunchOutput::write_some(Queue& queue) {
  const std::size_t size = std::min(queue.waiting.size(), kChunk);
  const ssize_t written = write(queue.fd, queue.waiting.data(), size);
  if (written >= 0) {
    queue.waiting.erase(0, static_cast<std::size_t>(written));
  } else if (errno != EINTR && errno != EAGAIN) {
    queue.closed = true;  // the run goes on, and its log files have everything
    queue.waiting.clear();
  }
}

}  // namespace pipewright::cli
