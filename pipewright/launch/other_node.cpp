#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
#include "pipewright/launch/connection.h"
#include "pipewright/launch/farewell.h"
#include "pipewright/launch/hello.h"
#include "pipewright/launch/node.h"
#include "pipewright/launch/roles.h"
#include "pipewright/launch/socket.h"

namespace pipewright::launch {
namespace {

constexpr Seconds kRetry{0.2};
/// An address that does not answer at all must not keep us from trying another.
constexpr Seconds kOneAttempt{3};
constexpr Seconds kFarewell{2};

class OtherNode {
 public:
  OtherNode(const LaunchOptions& options, Sink& sink, std::vector<Address> addresses,
            TimePoint connect_until)
      : options_(&options),
        addresses_(std::move(addresses)),
        connect_until_(connect_until),
        node_(options, sink) {
    sink.message(fmt::format("node {} of {} connects to {}", options.node_rank, options.nnodes,
                             options.master->text()));
  }

  int run() {
    if (!connect()) return node_.interrupted_status();
    const TimePoint begun = Clock::now();
    connection_->send(hello_of(*options_), begun);
    while (!is_over()) {
      wait();
      const TimePoint now = Clock::now();
      connection_->keep_alive(ping_interval(options_->deadline), options_->deadline, now);
      node_.tick(now);
      for (const Message& message : node_.take_messages()) connection_->send(message, now);
      if (connection_->lost()) node_.lose_coordinator(connection_->why_lost(), now);
    }
    say_farewell({&*connection_}, node_.is_urgent() ? Seconds(0) : kFarewell);
    return node_.status().value_or(node_.interrupted_status());
  }

 private:
  /// Who is interrupted need not wait for the others.
  bool is_over() const { return node_.ended_by_signal() || node_.status().has_value(); }

  void wait() {
    const TimePoint now = Clock::now();
    PollSet set;
    node_.watch(set);
    std::optional<TimePoint> until = node_.next_deadline(now);
    if (!connection_->lost()) {
      until = earlier(
          until, connection_->next_deadline(ping_interval(options_->deadline), options_->deadline));
      set.add(connection_->fd(), connection_->events(), [this] { serve(); });
    }
    set.wait(until);
  }

  void serve() {
    const TimePoint now = Clock::now();
    connection_->flush();
    for (const Message& message : connection_->receive(now)) node_.receive(message, now);
  }

  /// Tries the addresses in turn until one answers. False where a signal ended it; throws where the
  /// time is up.
  bool connect() {
    int error = ETIMEDOUT;
    for (std::size_t i = 0; i == 0 || Clock::now() < connect_until_; ++i) {
      error = try_connect(addresses_[i % addresses_.size()]);
      if (connection_) return true;
      if (!node_.ended_by_signal()) pause(std::min(after(Clock::now(), kRetry), connect_until_));
      if (node_.ended_by_signal()) return false;
    }
    throw TransportError(
        "launch", fmt::format("cannot connect to node 0 at {} within {}: {}; is its launcher "
                              "running there, and is the port open?",
                              options_->master->text(), format_seconds(options_->deadline.count()),
                              std::strerror(error)));
  }

  int try_connect(const Address& address) {
    Connecting attempt = begin_connect(address);
    if (attempt.error != 0 && attempt.error != EINPROGRESS) return attempt.error;
    bool ready = attempt.error == 0;
    const TimePoint until = std::min(after(Clock::now(), kOneAttempt), connect_until_);
    while (!ready && !node_.ended_by_signal() && Clock::now() < until) {
      PollSet set;
      node_.watch(set);
      set.add(attempt.fd.get(), POLLOUT, [&ready] { ready = true; });
      set.wait(until);
    }
    if (!ready) return ETIMEDOUT;
    const int error = finish_connect(attempt.fd.get());
    if (error == 0) connection_.emplace(std::move(attempt.fd), address.text(), Clock::now());
    return error;
  }

  void pause(TimePoint until) {
    while (!node_.ended_by_signal() && Clock::now() < until) {
      PollSet set;
      node_.watch(set);
      set.wait(until);
    }
  }

  const LaunchOptions* options_;
  std::vector<Address> addresses_;
  TimePoint connect_until_;
  Node node_;
  std::optional<Connection> connection_;
};

}  // namespace

int run_other_node(const LaunchOptions& options, Sink& sink) {
  const TimePoint until = after(Clock::now(), options.deadline);
  return OtherNode(options, sink, resolve(*options.master, until), until).run();
}

}  // namespace pipewright::launch
