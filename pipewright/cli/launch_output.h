#pragma once

#include <array>
#include <string>

#include "pipewright/launch/sink.h"

namespace pipewright::cli {

/// Standard output and error for a launcher: what they do not take at once, as when somebody
/// scrolls in a pager, is kept and written when they do.
class LaunchOutput : public launch::Sink {
 public:
  LaunchOutput();
  ~LaunchOutput() override;
  LaunchOutput(const LaunchOutput&) = delete;
  LaunchOutput& operator=(const LaunchOutput&) = delete;
  LaunchOutput(LaunchOutput&&) = delete;
  LaunchOutput& operator=(LaunchOutput&&) = delete;

  void message(std::string_view text) override;
  void output(launch::Stream stream, std::string_view bytes) override;
  int waiting_fd(launch::Stream stream) const override;
  void write_waiting(launch::Stream stream) override;
  bool is_full(launch::Stream stream) const override;

 private:
  struct Queue {
    int fd = -1;
    std::string waiting;
    bool within_line = false;  // the last byte handed over was no newline
    bool closed = false;       // nobody reads it any more
  };
  Queue& queue(launch::Stream stream) { return queues_[static_cast<std::size_t>(stream)]; }
  const Queue& queue(launch::Stream stream) const {
    return queues_[static_cast<std::size_t>(stream)];
  }
  static void write_some(Queue& queue);

  bool same_terminal_ = false;
  std::array<Queue, 2> queues_ = {Queue{.fd = 1, .waiting = {}}, Queue{.fd = 2, .waiting = {}}};
};

}  // namespace pipewright::cli
