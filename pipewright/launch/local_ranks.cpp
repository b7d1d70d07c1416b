#include "pipewright/launch/local_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "pipewright/launch/environment.h"

namespace pipewright::launch {
namespace {

constexpr std::size_t kReadBytes = 65536;
/// A pipe holds 64 KiB; who writes faster than this is read must not keep us here.
constexpr int kMostReadsToDrain = 32;
/// Killed processes end at once, but for those that a device or a file system holds on to.
constexpr Seconds kPatienceAfterKill{10};
/// The end of a process that is no child of ours, because its parent still runs, has no signal.
constexpr Seconds kLookAgain{0.05};

}  // namespace

LocalRanks::LocalRanks(const LaunchOptions& options, Sink& sink)
    : options_(&options), sink_(&sink) {}

LocalRanks::~LocalRanks() {
  signal_groups(SIGKILL);  // only where an exception ended the run
}

int LocalRanks::global(const Rank& rank) const {
  return first_rank_ + static_cast<int>(&rank - ranks_.data());
}

void LocalRanks::start(const Start& start, const std::string& log_folder) {
  ranks_.clear();
  ranks_.reserve(static_cast<std::size_t>(options_->local_ranks));
  first_rank_ = start.first_rank;
  stopping_ = false;
  kill_at_.reset();
  give_up_at_.reset();
  const std::string mark =
      start.attempt == 0 ? ""
                         : fmt::format("restart {} of {}", start.attempt, options_->max_restarts);
  for (int i = 0; i < options_->local_ranks; ++i) {
    Process process =
        start_process(options_->command, rank_environment(*options_, start, i), guardian_);
    try {
      RankLog log(fmt::format("{}/rank-{}.log", log_folder, first_rank_ + i), mark);
      ranks_.push_back({.process = std::move(process), .log = std::move(log), .ended = {}});
    } catch (...) {
      kill(-process.pid, SIGKILL);
      guardian_.let_go(process.pid);
      throw;
    }
  }
}

void LocalRanks::watch(PollSet& set) {
  for (Rank& rank : ranks_) {
    for (const Stream stream : {Stream::kOut, Stream::kErr}) {
      if (global(rank) == 0 && sink_->is_full(stream)) continue;
      const UniqueFd& pipe = stream == Stream::kOut ? rank.process.out : rank.process.err;
      set.add(pipe.get(), POLLIN, [this, &rank, stream] { read_once(rank, stream); });
    }
  }
  for (const Stream stream : {Stream::kOut, Stream::kErr})
    set.add(sink_->waiting_fd(stream), POLLOUT, [this, stream] { sink_->write_waiting(stream); });
}

bool LocalRanks::read_once(Rank& rank, Stream stream) {
  UniqueFd& pipe = stream == Stream::kOut ? rank.process.out : rank.process.err;
  if (!pipe.open()) return false;
  static std::array<char, kReadBytes> buffer;
  const ssize_t size = read(pipe.get(), buffer.data(), buffer.size());
  if (size < 0 && errno == EINTR) return true;
  if (size < 0 && errno == EAGAIN) return false;
  if (size <= 0) {
    pipe.reset();
    return false;
  }
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(size));
  rank.log.add(stream, bytes);
  if (global(rank) == 0) sink_->output(stream, bytes);
  if (!rank.log.trouble().empty() && !rank.trouble_told) {
    rank.trouble_told = true;
    sink_->message(fmt::format("cannot write '{}': {}; the rest of rank {}'s output is lost",
                               rank.log.path(), rank.log.trouble(), global(rank)));
  }
  return true;
}

void LocalRanks::drain(Rank& rank) {
  for (const Stream stream : {Stream::kOut, Stream::kErr}) {
    for (int i = 0; i < kMostReadsToDrain && read_once(rank, stream); ++i) continue;
  }
}

std::vector<LocalRanks::Ended> LocalRanks::reap() {
  std::vector<Ended> ended;
  int status = 0;
  for (;;) {
    // All children: what a rank leaves behind when it ends becomes a child of this process.
    const pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    note(pid, status, ended);
  }
  find_empty_groups();
  return ended;
}

void LocalRanks::note(pid_t pid, int wait_status, std::vector<Ended>& ended) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [pid](const Rank& rank) { return rank.process.pid == pid; });
  if (found == ranks_.end()) return;
  Rank& rank = *found;
  if (WIFSTOPPED(wait_status) || WIFCONTINUED(wait_status)) {
    if (stopping_) return;
    sink_->message(WIFSTOPPED(wait_status)
                       ? fmt::format("rank {} is suspended ({}): it does nothing until SIGCONT",
                                     global(rank), signal_name(WSTOPSIG(wait_status)))
                       : fmt::format("rank {} goes on (SIGCONT)", global(rank)));
    return;
  }
  rank.ended = ExitStatus::of_wait(wait_status);
  drain(rank);
  ended.push_back({static_cast<int>(found - ranks_.begin()), *rank.ended});
}

void LocalRanks::find_empty_groups() {
  for (Rank& rank : ranks_) {
    if (rank.gone || !rank.ended) continue;
    if (kill(-rank.process.pid, 0) == 0 || errno != ESRCH) continue;
    rank.gone = true;
    guardian_.let_go(rank.process.pid);
  }
  if (all_gone()) close_logs();
}

void LocalRanks::close_logs() {
  for (Rank& rank : ranks_) {
    drain(rank);
    rank.process.out.reset();
    rank.process.err.reset();
    rank.log.finish();
  }
}

void LocalRanks::signal_groups(int signal) {
  for (const Rank& rank : ranks_) {
    if (!rank.gone) kill(-rank.process.pid, signal);
  }
}

void LocalRanks::stop(int signal, TimePoint now) {
  if (!stopping_) {
    for (Rank& rank : ranks_) rank.was_asked = !rank.ended;
  }
  stopping_ = true;
  find_empty_groups();
  signal_groups(signal);
  signal_groups(SIGCONT);  // a suspended process receives nothing else but SIGKILL
  kill_at_ = earlier(kill_at_, after(now, options_->grace));
  tick(now);
}

void LocalRanks::kill_all(TimePoint now) {
  stop(SIGTERM, now);
  kill_at_ = now;
  tick(now);
}

void LocalRanks::tick(TimePoint now) {
  find_empty_groups();
  if (!stopping_ || all_gone()) return;
  if (!give_up_at_ && kill_at_ && now >= *kill_at_) {
    for (Rank& rank : ranks_) rank.was_made_to = rank.was_asked && !rank.ended;
    signal_groups(SIGKILL);
    give_up_at_ = after(now, kPatienceAfterKill);
  }
  if (!give_up_at_ || now < *give_up_at_) return;
  for (Rank& rank : ranks_) {
    if (rank.gone) continue;
    sink_->message(
        fmt::format("rank {} (process group {}) does not end although it was killed; it "
                    "is left behind",
                    global(rank), rank.process.pid));
    rank.gone = true;
  }
  close_logs();
}

std::optional<TimePoint> LocalRanks::next_deadline(TimePoint now) const {
  if (!stopping_ || all_gone()) return std::nullopt;
  const bool without_signal = std::any_of(
      ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended && !rank.gone; });
  const auto due = give_up_at_ ? give_up_at_ : kill_at_;
  return without_signal ? earlier(due, after(now, kLookAgain)) : due;
}

bool LocalRanks::all_gone() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.gone; });
}

bool LocalRanks::all_succeeded() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.ended && !rank.ended->failed(); });
}

std::string LocalRanks::tail_text(int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  if (index >= ranks_.size()) return "";  // it was not started
  Rank& rank = ranks_[index];
  rank.log.finish();
  const std::vector<std::string> lines = rank.log.tail();
  if (lines.empty()) return fmt::format("it wrote nothing to {}", rank.log.path());
  const std::string count = lines.size() == 1 ? "line" : fmt::format("{} lines", lines.size());
  return fmt::format("the last {} of {}:\n    {}", count, rank.log.path(),
                     fmt::join(lines, "\n    "));
}

std::string LocalRanks::stopped_text() const {
  std::vector<std::string> names;
  for (const Rank& rank : ranks_) {
    if (!rank.was_asked) continue;
    names.push_back(
        fmt::format("rank {}{}", global(rank), rank.was_made_to ? " (had to be killed)" : ""));
  }
  return names.empty() ? "" : fmt::format("stopped: {}", fmt::join(names, ", "));
}

}  // namespace pipewright::launch
