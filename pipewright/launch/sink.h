#pragma once

#include <string_view>

namespace pipewright::launch {

enum class Stream { kOut, kErr };

/// Where a launcher says what it has to say and hands on what rank 0 writes. Nothing here may
/// block: what cannot be written at once is kept, and `waiting_fd` says what to wait for.
class Sink {
 public:
  Sink() = default;
  virtual ~Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  Sink(Sink&&) = delete;
  Sink& operator=(Sink&&) = delete;

  /// The launcher's own words: a line, or a line and indented ones below it. No newline at the end.
  virtual void message(std::string_view text) = 0;

  /// Rank 0's bytes as they come, not cut at lines.
  virtual void output(Stream stream, std::string_view bytes) = 0;

  /// The descriptor that bytes of this stream wait for, or -1 where none do.
  virtual int waiting_fd(Stream) const { return -1; }
  /// That descriptor takes bytes again.
  virtual void write_waiting(Stream) {}
  /// So much waits that rank 0 should be held back.
  virtual bool is_full(Stream) const { return false; }
};

}  // namespace pipewright::launch
