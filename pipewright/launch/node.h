#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipewright/launch/clock.h"
#include "pipewright/launch/local_ranks.h"
#include "pipewright/launch/message.h"
#include "pipewright/launch/options.h"
#include "pipewright/launch/poll_set.h"
#include "pipewright/launch/signals.h"
#include "pipewright/launch/sink.h"

namespace pipewright::launch {

/// One node's part in a run: does with its ranks what node 0 says, and tells it what they do. Knows
/// nothing of where node 0's coordinator is: messages are handed in and taken out.
class Node {
 public:
  Node(const LaunchOptions& options, Sink& sink);

  /// Start, Stop and End; what a node does not expect ends it.
  void receive(const Message& message, TimePoint now);
  /// What is to be told to node 0 since the last call.
  std::vector<Message> take_messages();

  /// Node 0 cannot be reached any more: the ranks are stopped, the status is 1.
  void lose_coordinator(const std::string& why, TimePoint now);

  /// Signals, the ranks' pipes, the sink.
  void watch(PollSet& set);
  /// Does what is due.
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline(TimePoint now) const;

  /// The launcher's exit status once this node has nothing left to do.
  std::optional<int> status() const;
  /// The signal that it was asked to end with, and has.
  bool ended_by_signal() const { return interrupted_ != 0 && ranks_.all_gone(); }
  /// It was asked twice.
  bool is_urgent() const { return num_interrupts_ > 1; }
  int interrupted_status() const { return 128 + interrupted_; }

 private:
  enum class Phase { kIdle, kRunning, kSweeping, kDone, kStopping };

  void start(const Start& start);
  void cannot_start(int status, const std::string& reason);
  void stop(const Stop& stop, TimePoint now);
  void end(const End& end, TimePoint now);
  void take_signals(TimePoint now);
  void interrupt(int signal, TimePoint now);
  void reap(TimePoint now);
  void finish_stopping();
  void say(const std::string& text);

  const LaunchOptions* options_;
  Sink* sink_;
  Signals signals_;  // before the ranks: their ends must not be missed
  LocalRanks ranks_;
  std::string log_folder_;
  std::vector<Message> messages_;
  Phase phase_ = Phase::kIdle;
  int attempt_ = 0;
  int first_rank_ = 0;
  int interrupted_ = 0;
  int num_interrupts_ = 0;
  std::string last_reason_;
  std::optional<End> end_;
};

}  // namespace pipewright::launch
