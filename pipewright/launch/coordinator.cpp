#include "pipewright/launch/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"

namespace pipewright::launch {
namespace {

/// When a rank dies the others fail a moment later, for want of it, and may be seen first: the
/// system closes a process's connections before it reports the process's end.
constexpr Seconds kSettleSeconds{0.3};
constexpr std::size_t kMostNamed = 8;

template <typename... Cases>
struct Visitor : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Visitor(Cases...) -> Visitor<Cases...>;

}  // namespace

Coordinator::Coordinator(Setup setup, TimePoint now)
    : setup_(std::move(setup)),
      nodes_(static_cast<std::size_t>(setup_.own.nnodes)),
      join_until_(after(now, Seconds(setup_.own.deadline_seconds))) {
  nodes_[0].joined = true;
  nodes_[0].hello = setup_.own;
  if (all(&Node::joined)) start_attempt();
}

std::string Coordinator::name(int node) const {
  const auto& entry = nodes_[static_cast<std::size_t>(node)];
  return fmt::format("node {} ({})", node, entry.hello.host);
}

std::string Coordinator::contradiction(const Hello& hello, const std::string& address) const {
  const auto differ = [&](const char* what, auto theirs, auto ours) {
    return fmt::format(
        "node {} ({}, {}) was started with {} {}, node 0 ({}) with {} {}; start "
        "every node with the same",
        hello.node_rank, hello.host, address, what, theirs, setup_.own.host, what, ours);
  };
  const Hello& own = setup_.own;
  if (hello.version != own.version) {
    return fmt::format(
        "the launcher at {} speaks protocol version {}, that of node 0 version {}; "
        "install the same pipewright on every node",
        address, hello.version, own.version);
  }
  if (hello.nnodes != own.nnodes) return differ("--nnodes", hello.nnodes, own.nnodes);
  if (hello.max_restarts != own.max_restarts)
    return differ("--max-restarts", hello.max_restarts, own.max_restarts);
  if (hello.deadline_seconds != own.deadline_seconds) {
    return differ("--deadline", format_number(hello.deadline_seconds),
                  format_number(own.deadline_seconds));
  }
  if (hello.node_rank >= own.nnodes)
    return fmt::format("[launch] --node-rank {} of {} is not below --nnodes {}", hello.node_rank,
                       address, own.nnodes);
  const Node& taken = nodes_[static_cast<std::size_t>(hello.node_rank)];
  if (!taken.joined) return "";
  const std::string first = hello.node_rank == 0 ? setup_.where : taken.address;
  return fmt::format(
      "two launchers have --node-rank {}: that of {} ({}) and that of {} ({}); give "
      "every node its own",
      hello.node_rank, taken.hello.host, first, hello.host, address);
}

std::string Coordinator::join(const Hello& hello, const std::string& address) {
  if (phase_ != Phase::kJoining)
    return "[launch] the run has begun with all of its nodes; use another port for another run";
  std::string wrong = contradiction(hello, address);
  if (!wrong.empty()) {
    end(2, wrong);
    return wrong;
  }
  Node& node = nodes_[static_cast<std::size_t>(hello.node_rank)];
  node.joined = true;
  node.hello = hello;
  node.address = address;
  if (all(&Node::joined)) start_attempt();
  return "";
}

void Coordinator::start_attempt() {
  phase_ = Phase::kRunning;
  failures_.clear();
  int world_size = 0;
  for (Node& node : nodes_) {
    node.first_rank = world_size;
    node.done = node.stopped = false;
    world_size += node.hello.local_ranks;
  }
  const int port = setup_.pick_port(attempt_);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Start start;
    start.attempt = attempt_;
    start.first_rank = nodes_[i].first_rank;
    start.world_size = world_size;
    start.master_addr = setup_.master_addr;
    start.master_port = port;
    start.run_id = setup_.run_id;
    order(static_cast<int>(i), start);
  }
}

void Coordinator::receive(int node, const Message& message, TimePoint now) {
  if (over()) return;
  Node& sender = nodes_.at(static_cast<std::size_t>(node));
  std::visit(
      Visitor{
          [&](const Failed& failed) { note_failure(node, failed, now); },
          [&](const Done& done) {
            if (done.attempt != attempt_) return;
            sender.done = true;
            if (phase_ == Phase::kRunning && all(&Node::done)) end(0, "");
          },
          [&](const Stopped& stopped) {
            if (stopped.attempt != attempt_) return;
            sender.stopped = true;
            after_stop();
          },
          [&](const CannotStart& failure) {
            const std::string where = nodes_.size() == 1 ? "" : name(node) + ": ";
            stop({.status = failure.status, .signal = SIGTERM, .reason = where + failure.reason});
          },
          [&](const Interrupted& interrupted) {
            const std::string reason =
                fmt::format("{} was interrupted ({})", name(node), signal_name(interrupted.signal));
            stop({.status = 128 + interrupted.signal,
                  .signal = interrupted.signal,
                  .reason = nodes_.size() == 1 ? "" : reason});
          },
          [](const Ping&) {},
          [&](const auto&) { vanished(node, "it sent what only node 0 sends"); },
      },
      message);
}

void Coordinator::note_failure(int node, const Failed& failed, TimePoint now) {
  const Node& sender = nodes_[static_cast<std::size_t>(node)];
  if (failed.local_rank >= sender.hello.local_ranks || !failed.status.failed())
    return vanished(node, "it reported a failure that cannot be");
  if (failed.attempt != attempt_) return;
  if (phase_ != Phase::kRunning && phase_ != Phase::kSettling) return;
  const int rank = sender.first_rank + failed.local_rank;
  const auto known = std::find_if(failures_.begin(), failures_.end(),
                                  [rank](const Failure& failure) { return failure.rank == rank; });
  if (known != failures_.end()) return;
  failures_.push_back({node, rank, failed.status});
  if (phase_ == Phase::kSettling) return;
  phase_ = Phase::kSettling;
  decide_at_ = after(now, kSettleSeconds);
}

std::string Coordinator::describe(const Failure& failure) const {
  if (nodes_.size() == 1) return fmt::format("rank {} {}", failure.rank, failure.status.words());
  const int first = nodes_[static_cast<std::size_t>(failure.node)].first_rank;
  const Hello& hello = nodes_[static_cast<std::size_t>(failure.node)].hello;
  return fmt::format("rank {} (local rank {} of node {}, {}) {}", failure.rank,
                     failure.rank - first, failure.node, hello.host, failure.status.words());
}

void Coordinator::decide() {
  // The first, unless one died of itself: that was then the cause, and only reported later.
  const auto own_death = std::find_if(failures_.begin(), failures_.end(),
                                      [](const Failure& f) { return f.status.is_own_death(); });
  const auto cause = own_death == failures_.end() ? failures_.begin() : own_death;
  std::string reason = describe(*cause);
  std::vector<std::string> others;
  for (auto it = failures_.begin(); it != failures_.end(); ++it) {
    if (it != cause) others.push_back(fmt::format("rank {} {}", it->rank, it->status.words()));
  }
  const std::size_t more = others.size() - std::min(others.size(), kMostNamed);
  others.resize(others.size() - more);
  if (!others.empty()) reason += fmt::format("; also failed: {}", fmt::join(others, ", "));
  if (more > 0) reason += fmt::format(" and {} more", more);
  const int most = setup_.own.max_restarts;
  if (most > 0 && attempt_ == most) reason += fmt::format("; all {} restarts are used up", most);
  stop({.status = cause->status.shell_status(),
        .signal = SIGTERM,
        .rank = cause->rank,
        .reason = reason,
        .restart = attempt_ < most});
}

void Coordinator::stop(Ending ending) {
  if (phase_ == Phase::kJoining) return end(ending.status, ending.reason);
  if (phase_ == Phase::kStopping) {
    // What ends the run for good takes the place of a restart; the ranks are being stopped as it
    // is.
    if (ending_.restart && !ending.restart) ending_ = std::move(ending);
    return after_stop();
  }
  phase_ = Phase::kStopping;
  ending_ = std::move(ending);
  order_all(Stop{.attempt = attempt_,
                 .signal = ending_.signal,
                 .rank = ending_.rank,
                 .reason = ending_.reason});
  after_stop();
}

void Coordinator::after_stop() {
  if (phase_ != Phase::kStopping || !all(&Node::stopped)) return;
  if (!ending_.restart) return end(ending_.status, ending_.reason);
  ++attempt_;
  start_attempt();
}

void Coordinator::vanished(int node, const std::string& how) {
  Node& gone = nodes_.at(static_cast<std::size_t>(node));
  if (over() || gone.left) return;
  const bool announced = phase_ == Phase::kStopping && gone.stopped && !ending_.restart;
  gone.left = true;
  if (announced) return after_stop();
  stop({.status = 1,
        .signal = SIGTERM,
        .reason = fmt::format("[launch] {} at {} is lost: {}; the run ends", name(node),
                              gone.address, how)});
}

std::vector<int> Coordinator::missing() const {
  std::vector<int> result;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].joined) result.push_back(static_cast<int>(i));
  }
  return result;
}

void Coordinator::tick(TimePoint now) {
  if (phase_ == Phase::kSettling && now >= decide_at_) decide();
  if (phase_ != Phase::kJoining || now < join_until_) return;
  const std::vector<int> absent = missing();
  end(1, fmt::format(
             "[launch] node{} {} of {} did not come to {} within {}; start the same command there, "
             "or give more --deadline",
             absent.size() == 1 ? "" : "s", fmt::join(absent, ", "), nodes_.size(), setup_.where,
             format_seconds(setup_.own.deadline_seconds)));
}

std::optional<TimePoint> Coordinator::next_deadline() const {
  if (phase_ == Phase::kJoining) return join_until_;
  if (phase_ == Phase::kSettling) return decide_at_;
  return std::nullopt;
}

std::vector<Coordinator::Order> Coordinator::take_orders() { return std::exchange(orders_, {}); }

void Coordinator::end(int status, const std::string& reason) {
  phase_ = Phase::kOver;
  order_all(End{status, reason});
}

bool Coordinator::all(bool Node::*flag) const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [flag](const Node& node) { return node.left || node.*flag; });
}

void Coordinator::order(int node, const Message& message) {
  Order& entry = orders_.emplace_back();
  entry.node = node;
  entry.message = message;
}

void Coordinator::order_all(const Message& message) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].joined && !nodes_[i].left) order(static_cast<int>(i), message);
  }
}

}  // namespace pipewright::launch
