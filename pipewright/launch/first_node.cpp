#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <list>

#include "pipewright/base/error.h"
#include "pipewright/launch/connection.h"
#include "pipewright/launch/coordinator.h"
#include "pipewright/launch/farewell.h"
#include "pipewright/launch/hello.h"
#include "pipewright/launch/node.h"
#include "pipewright/launch/roles.h"
#include "pipewright/launch/socket.h"

namespace pipewright::launch {
namespace {

/// Whoever connects and does not say who they are; more than this at a time are turned away.
constexpr std::size_t kMostStrangers = 64;
constexpr Seconds kStrangerSeconds{5};
constexpr int kMostRefusalsTold = 10;
constexpr Seconds kFarewell{2};
constexpr Seconds kRest{1};
const Endpoint kLoopback{"127.0.0.1", 1};

/// A connection to the control port: a stranger until its Hello is accepted.
struct Peer {
  Connection connection;
  TimePoint since;
  int node = -1;
  bool refused = false;
};

std::string random_id() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) != sizeof(bits))
    bits = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  return fmt::format("{:016x}", bits);
}

class FirstNode {
 public:
  FirstNode(const LaunchOptions& options, Sink& sink, const std::vector<Address>& addresses)
      : options_(&options),
        sink_(&sink),
        listener_(options.nnodes > 1 ? listen_at(addresses, *options.master) : UniqueFd()),
        coordinator_(setup(options, addresses), Clock::now()),
        node_(options, sink) {
    if (options.nnodes > 1) {
      sink.message(fmt::format("node 0 of {} waits for the others at {}", options.nnodes,
                               options.master->text()));
    }
  }

  int run() {
    exchange();
    while (!is_over()) {
      wait();
      const TimePoint now = Clock::now();
      keep_alive(now);
      coordinator_.tick(now);
      node_.tick(now);
      exchange();
      forget_lost();
    }
    std::vector<Connection*> connections;
    for (Peer& peer : peers_) {
      if (peer.node >= 0 || peer.refused) connections.push_back(&peer.connection);
    }
    listener_.reset();
    say_farewell(connections, node_.is_urgent() ? Seconds(0) : kFarewell);
    return node_.status().value_or(node_.interrupted_status());
  }

 private:
  static Coordinator::Setup setup(const LaunchOptions& options,
                                  const std::vector<Address>& addresses) {
    const Endpoint endpoint = options.master.value_or(kLoopback);
    const bool given = options.nnodes == 1 && options.master;
    return {.own = hello_of(options),
            .master_addr = endpoint.host,
            .run_id = random_id(),
            .pick_port =
                [endpoint, addresses, given](int attempt) {
                  if (!given || attempt > 0) return free_port(addresses, endpoint);
                  check_port_is_free(addresses, endpoint);
                  return endpoint.port;
                },
            .where = endpoint.text()};
  }

  bool is_over() const {
    if (node_.is_urgent() && node_.ended_by_signal()) return true;  // the others see us go
    return coordinator_.over() && node_.status().has_value();
  }

  void wait() {
    const TimePoint now = Clock::now();
    std::optional<TimePoint> until =
        earlier(coordinator_.next_deadline(), node_.next_deadline(now));
    PollSet set;
    node_.watch(set);
    if (now < accept_from_) {
      until = earlier(until, accept_from_);
    } else if (has_room()) {
      set.add(listener_.get(), POLLIN, [this] { accept_all(); });
    }
    for (Peer& peer : peers_) {
      set.add(peer.connection.fd(), peer.connection.events(), [this, &peer] { serve(peer); });
      until = earlier(until, peer_deadline(peer));
    }
    set.wait(until);
  }

  TimePoint peer_deadline(const Peer& peer) const {
    if (peer.node < 0) return after(peer.since, kStrangerSeconds);
    return peer.connection.next_deadline(ping_interval(options_->deadline), options_->deadline);
  }

  bool has_room() const {
    return peers_.size() < kMostStrangers + static_cast<std::size_t>(options_->nnodes);
  }

  void accept_all() {
    const TimePoint now = Clock::now();
    while (has_room()) {
      std::string address;
      UniqueFd fd = accept_one(listener_.get(), address);
      // Where this process has no descriptor left, the connection waits, and so must we.
      if (!fd.open() && errno != EAGAIN && errno != ECONNABORTED) accept_from_ = after(now, kRest);
      if (!fd.open()) return;
      peers_.push_back({Connection(std::move(fd), address, now), now});
    }
  }

  void serve(Peer& peer) {
    const TimePoint now = Clock::now();
    peer.connection.flush();
    for (const Message& message : peer.connection.receive(now)) {
      if (peer.refused) return;
      if (peer.node >= 0) {
        coordinator_.receive(peer.node, message, now);
      } else if (const auto* hello = std::get_if<Hello>(&message)) {
        greet(peer, *hello, now);
      } else {
        peer.connection.lose("it did not say who it is");
      }
    }
  }

  void greet(Peer& peer, const Hello& hello, TimePoint now) {
    const std::string refusal = coordinator_.join(hello, peer.connection.peer());
    if (refusal.empty()) {
      peer.node = hello.node_rank;
      sink_->message(fmt::format("node {} ({}) has come from {}", hello.node_rank, hello.host,
                                 peer.connection.peer()));
      return;
    }
    peer.refused = true;
    peer.connection.send(End{2, refusal}, now);
    peer.connection.finish_sending();
    if (!coordinator_.over()) tell_refusal(peer.connection.peer(), refusal);
  }

  void tell_refusal(const std::string& address, const std::string& why) {
    if (++num_refusals_ > kMostRefusalsTold) return;
    sink_->message(fmt::format(
        "refused a connection from {}: {}{}", address, why,
        num_refusals_ == kMostRefusalsTold ? "; more of them are refused without a word" : ""));
  }

  void keep_alive(TimePoint now) {
    for (Peer& peer : peers_) {
      if (peer.node >= 0) {
        peer.connection.keep_alive(ping_interval(options_->deadline), options_->deadline, now);
      } else if (now >= after(peer.since, kStrangerSeconds)) {
        peer.connection.lose("it did not say who it is");
      }
    }
  }

  void forget_lost() {
    for (auto peer = peers_.begin(); peer != peers_.end();) {
      if (!peer->connection.lost()) {
        ++peer;
        continue;
      }
      if (peer->node >= 0) {
        coordinator_.vanished(peer->node, peer->connection.why_lost());
      } else if (!peer->refused) {
        tell_refusal(peer->connection.peer(), peer->connection.why_lost());
      }
      peer = peers_.erase(peer);
    }
    exchange();
  }

  /// Takes messages from our own node to the coordinator and orders to all nodes until there are
  /// none.
  void exchange() {
    for (;;) {
      const TimePoint now = Clock::now();
      const auto messages = node_.take_messages();
      for (const Message& message : messages) coordinator_.receive(0, message, now);
      const auto orders = coordinator_.take_orders();
      for (const auto& [node, message] : orders) send(node, message, now);
      node_.tick(now);
      if (messages.empty() && orders.empty()) return;
    }
  }

  void send(int node, const Message& message, TimePoint now) {
    if (node == 0) return node_.receive(message, now);
    for (Peer& peer : peers_) {
      if (peer.node == node) peer.connection.send(message, now);
    }
  }

  const LaunchOptions* options_;
  Sink* sink_;
  UniqueFd listener_;
  std::list<Peer> peers_;  // a list: what is waited for keeps its place
  Coordinator coordinator_;
  Node node_;
  int num_refusals_ = 0;
  TimePoint accept_from_ = TimePoint::min();
};

}  // namespace

int run_first_node(const LaunchOptions& options, Sink& sink) {
  const auto addresses =
      resolve(options.master.value_or(kLoopback), after(Clock::now(), options.deadline));
  return FirstNode(options, sink, addresses).run();
}

}  // namespace pipewright::launch
