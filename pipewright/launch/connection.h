#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipewright/launch/clock.h"
#include "pipewright/launch/message.h"
#include "pipewright/launch/unique_fd.h"

namespace pipewright::launch {

/// Messages over a socket, without blocking. What the other side may make this hold is bounded;
/// once it breaks a rule or goes away the connection is `lost`, with the reason in words, and stays
/// so.
class Connection {
 public:
  Connection(UniqueFd socket, std::string peer, TimePoint now);

  int fd() const { return socket_.get(); }
  const std::string& peer() const { return peer_; }
  /// poll()'s events to wait for.
  int events() const;

  void send(const Message& message, TimePoint now);
  /// Sends what waits. Called by send; call again when the socket is ready.
  void flush();
  /// What has come. A message after one that cannot be read is not read.
  std::vector<Message> receive(TimePoint now);

  /// Sends a Ping where nothing was sent for `every`, and is lost where nothing came for
  /// `deadline`.
  void keep_alive(Seconds every, Seconds deadline, TimePoint now);
  TimePoint next_deadline(Seconds every, Seconds deadline) const;

  /// No more is sent; the other side sees the end once it has read everything.
  void finish_sending();
  bool sends_wait() const { return !unsent_.empty(); }

  bool lost() const { return !why_lost_.empty(); }
  const std::string& why_lost() const { return why_lost_; }
  /// From now on nothing is sent or received.
  void lose(std::string why);

 private:
  void take_lines(std::vector<Message>& messages);

  UniqueFd socket_;
  std::string peer_;
  std::string unsent_;
  std::string unread_;
  std::string why_lost_;
  TimePoint last_sent_;
  TimePoint last_heard_;
};

}  // namespace pipewright::launch
