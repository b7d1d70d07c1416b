#include "pipewright/launch/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"

namespace pipewright::launch {
namespace {

/// Far more than a run's messages: who does not read them is not there.
constexpr std::size_t kMostUnsent = 1 << 20;

}  // namespace

Connection::Connection(UniqueFd socket, std::string peer, TimePoint now)
    : socket_(std::move(socket)), peer_(std::move(peer)), last_sent_(now), last_heard_(now) {}

int Connection::events() const { return POLLIN | (unsent_.empty() ? 0 : POLLOUT); }

void Connection::lose(std::string why) {
  if (lost()) return;
  why_lost_ = std::move(why);
  unsent_.clear();
  unread_.clear();
  socket_.reset();
}

void Connection::send(const Message& message, TimePoint now) {
  if (lost()) return;
  unsent_ += encode(message);
  last_sent_ = now;
  if (unsent_.size() > kMostUnsent) return lose("it does not read what it is sent");
  flush();
}

void Connection::flush() {
  while (!lost() && !unsent_.empty()) {
    const ssize_t size = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (size >= 0) {
      unsent_.erase(0, static_cast<std::size_t>(size));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      unsent_.clear();  // what it said before it went is still to be read
    } else if (errno != EINTR) {
      lose(std::strerror(errno));
    }
  }
}

std::vector<Message> Connection::receive(TimePoint now) {
  std::vector<Message> messages;
  std::array<char, 4096> buffer{};
  while (!lost()) {
    const ssize_t size = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size <= 0) {
      lose(size == 0 ? "its connection closed" : std::strerror(errno));
      break;
    }
    last_heard_ = now;
    unread_.append(buffer.data(), static_cast<std::size_t>(size));
    take_lines(messages);
  }
  return messages;
}

void Connection::take_lines(std::vector<Message>& messages) {
  std::size_t start = 0;
  for (;;) {
    const std::size_t end = unread_.find('\n', start);
    const std::size_t length = std::min(end, unread_.size()) - start;
    if (length > kMostLineBytes)
      return lose(fmt::format("it sent a line of more than {} bytes", kMostLineBytes));
    if (end == std::string::npos) break;
    try {
      messages.push_back(decode(std::string_view(unread_).substr(start, length)));
    } catch (const InvalidArgument& error) {
      return lose(fmt::format("it sent what is no message: {}", error.what()));
    }
    start = end + 1;
  }
  unread_.erase(0, start);
}

void Connection::keep_alive(Seconds every, Seconds deadline, TimePoint now) {
  if (lost()) return;
  if (now >= after(last_heard_, deadline)) {
    return lose(fmt::format("nothing was heard of it for {}", format_seconds(deadline.count())));
  }
  if (now >= after(last_sent_, every)) send(Ping{}, now);
}

TimePoint Connection::next_deadline(Seconds every, Seconds deadline) const {
  return std::min(after(last_heard_, deadline), after(last_sent_, every));
}

void Connection::finish_sending() {
  if (!lost()) shutdown(socket_.get(), SHUT_WR);
}

}  // namespace pipewright::launch
