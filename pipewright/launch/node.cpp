#include "pipewright/launch/node.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <utility>

#include "pipewright/base/error.h"

namespace pipewright::launch {

Node::Node(const LaunchOptions& options, Sink& sink)
    : options_(&options), sink_(&sink), ranks_(options, sink) {}

void Node::say(const std::string& text) {
  if (!text.empty()) sink_->message(text);
}

std::vector<Message> Node::take_messages() { return std::exchange(messages_, {}); }

void Node::receive(const Message& message, TimePoint now) {
  if (const auto* begun = std::get_if<Start>(&message)) {
    start(*begun);
  } else if (const auto* stopped = std::get_if<Stop>(&message)) {
    stop(*stopped, now);
  } else if (const auto* ended = std::get_if<End>(&message)) {
    end(*ended, now);
  } else if (!std::holds_alternative<Ping>(message)) {
    lose_coordinator("it sent what only the other nodes send", now);
  }
}

void Node::start(const Start& start) {
  if (phase_ != Phase::kIdle || interrupted_ != 0 || end_) return;
  attempt_ = start.attempt;
  first_rank_ = start.first_rank;
  phase_ = Phase::kRunning;
  try {
    const bool first = log_folder_.empty();
    if (first) log_folder_ = make_log_folder(options_->log_dir);
    ranks_.start(start, log_folder_);
    const int last = first_rank_ + options_->local_ranks - 1;
    const std::string ranks = options_->local_ranks == 1
                                  ? fmt::format("rank {}", last)
                                  : fmt::format("ranks {} to {}", first_rank_, last);
    say(first ? fmt::format("{} of {} started; logs in {}", ranks, start.world_size, log_folder_)
              : fmt::format("restart {} of {}: {} of {} started", attempt_, options_->max_restarts,
                            ranks, start.world_size));
  } catch (const CannotExecute& error) {
    cannot_start(error.shell_status(), error.what());
  } catch (const InvalidArgument& error) {
    cannot_start(2, error.what());
  } catch (const Error& error) {
    cannot_start(1, error.what());
  }
}

void Node::cannot_start(int status, const std::string& reason) {
  std::error_code ignored;  // a folder that is not empty stays
  const std::filesystem::path folder = log_folder_;
  if (options_->log_dir.empty() && std::filesystem::remove(folder, ignored))
    std::filesystem::remove(folder.parent_path(), ignored);
  messages_.emplace_back(CannotStart{status, reason});
}

void Node::stop(const Stop& stop, TimePoint now) {
  if (phase_ == Phase::kIdle || stop.attempt != attempt_) return;
  say(stop.reason);
  last_reason_ = stop.reason;
  const int local = stop.rank - first_rank_;
  if (stop.rank >= 0 && local >= 0 && local < options_->local_ranks) say(ranks_.tail_text(local));
  phase_ = Phase::kStopping;
  ranks_.stop(stop.signal, now);
}

void Node::end(const End& end, TimePoint now) {
  if (end_) return;
  if (end.reason != last_reason_) say(end.reason);
  end_ = end;
  if (!ranks_.all_gone()) ranks_.stop(SIGTERM, now);
}

void Node::lose_coordinator(const std::string& why, TimePoint now) {
  if (end_) return;
  end({.status = 1,
       .reason = fmt::format("[launch] node 0 at {} is lost: {}; the run ends",
                             options_->master ? options_->master->text() : "this machine", why)},
      now);
}

void Node::watch(PollSet& set) {
  set.add(signals_.fd(), POLLIN, [this] { take_signals(Clock::now()); });
  ranks_.watch(set);
}

void Node::take_signals(TimePoint now) {
  while (const auto signal = signals_.next()) {
    if (*signal != SIGCHLD) interrupt(*signal, now);
  }
  reap(now);  // several ends may have come as one signal
}

void Node::interrupt(int signal, TimePoint now) {
  if (++num_interrupts_ > 1) {
    say(fmt::format("{} again: the ranks are killed", signal_name(signal)));
    return ranks_.kill_all(now);
  }
  interrupted_ = signal;
  messages_.emplace_back(Interrupted{signal});
  if (ranks_.all_gone()) return say(fmt::format("{}: the run ends", signal_name(signal)));
  say(fmt::format("{} is passed on to the ranks; once more kills them", signal_name(signal)));
  if (phase_ != Phase::kIdle) phase_ = Phase::kStopping;
  ranks_.stop(signal, now);
}

void Node::reap(TimePoint now) {
  for (const auto& [local_rank, status] : ranks_.reap()) {
    if (phase_ != Phase::kRunning || !status.failed()) continue;
    messages_.emplace_back(Failed{attempt_, local_rank, status});
  }
  if (phase_ != Phase::kRunning || !ranks_.all_succeeded()) return;
  phase_ = Phase::kSweeping;
  if (ranks_.all_gone()) return;
  say("all ranks have ended; what they left running is stopped");
  ranks_.stop(SIGTERM, now);
}

void Node::tick(TimePoint now) {
  if (phase_ != Phase::kIdle) reap(now);
  ranks_.tick(now);
  if (!ranks_.all_gone()) return;
  if (phase_ == Phase::kSweeping) {
    phase_ = Phase::kDone;
    messages_.emplace_back(Done{attempt_});
  }
  if (phase_ == Phase::kStopping) finish_stopping();
}

void Node::finish_stopping() {
  phase_ = Phase::kIdle;
  say(ranks_.stopped_text());
  messages_.emplace_back(Stopped{attempt_});
}

/// Where the caller has threads of its own, one of them may be told of a child's end instead: so
/// ranks are also looked after from time to time.
std::optional<TimePoint> Node::next_deadline(TimePoint now) const {
  constexpr std::chrono::milliseconds kLookEvery(500);
  const auto due = ranks_.next_deadline(now);
  if (phase_ == Phase::kIdle) return due;
  const TimePoint look = now + kLookEvery;
  return due && *due < look ? *due : look;
}

std::optional<int> Node::status() const {
  if (!end_ || !ranks_.all_gone()) return std::nullopt;
  return interrupted_ != 0 ? interrupted_status() : end_->status;
}

}  // namespace pipewright::launch
