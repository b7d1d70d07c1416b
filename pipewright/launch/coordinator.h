#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/launch/clock.h"
#include "pipewright/launch/message.h"

namespace pipewright::launch {

/// What node 0 decides: who takes part, when to start, what a failure means, when it is over. Has
/// no sockets, processes or clock of its own: it is told what happens and says what is to be sent.
class Coordinator {
 public:
  struct Order {
    int node = 0;
    Message message;
  };
  struct Setup {
    Hello own;  // node 0's, and what all others must agree with
    std::string master_addr;
    std::string run_id;
    std::function<int(int attempt)> pick_port;  // the ranks' MASTER_PORT
    std::string where;                          // node 0 listens, for messages
  };

  Coordinator(Setup setup, TimePoint now);

  /// A launcher announced itself from that address. Empty where it is one of the run's nodes from
  /// now on, else why it is refused. One that contradicts node 0's options ends the run for all.
  std::string join(const Hello& hello, const std::string& address);

  /// A node's message, or its connection's end.
  void receive(int node, const Message& message, TimePoint now);
  void vanished(int node, const std::string& how);

  /// Does what is due; call when `next_deadline` has come.
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  /// What is to be sent since the last call, in order.
  std::vector<Order> take_orders();

  /// Every node has its End.
  bool over() const { return phase_ == Phase::kOver; }
  /// The nodes that are not there yet.
  std::vector<int> missing() const;

 private:
  enum class Phase {
    kJoining,
    kRunning,
    kSettling,  // a rank failed: others may follow at once, and one of them may be the cause
    kStopping,
    kOver,
  };
  struct Node {
    bool joined = false;
    bool left = false;
    bool done = false;     // in this attempt
    bool stopped = false;  // in this attempt
    Hello hello;
    std::string address;
    int first_rank = 0;
  };
  struct Failure {
    int node = 0;
    int rank = 0;
    ExitStatus status;
  };
  struct Ending {
    int status = 1;
    int signal = 0;
    int rank = -1;
    std::string reason;
    bool restart = false;
  };

  std::string contradiction(const Hello& hello, const std::string& address) const;
  void start_attempt();
  void note_failure(int node, const Failed& failed, TimePoint now);
  void decide();
  std::string describe(const Failure& failure) const;
  std::string name(int node) const;
  void stop(Ending ending);
  void after_stop();
  void end(int status, const std::string& reason);
  bool all(bool Node::*flag) const;
  void order(int node, const Message& message);
  void order_all(const Message& message);

  Setup setup_;
  std::vector<Node> nodes_;
  std::vector<Order> orders_;
  Phase phase_ = Phase::kJoining;
  TimePoint join_until_;
  TimePoint decide_at_;
  int attempt_ = 0;
  std::vector<Failure> failures_;
  Ending ending_;
};

}  // namespace pipewright::launch
