#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "pipewright/launch/clock.h"
#include "pipewright/launch/exit_status.h"
#include "pipewright/launch/guardian.h"
#include "pipewright/launch/message.h"
#include "pipewright/launch/options.h"
#include "pipewright/launch/poll_set.h"
#include "pipewright/launch/process.h"
#include "pipewright/launch/rank_log.h"
#include "pipewright/launch/sink.h"

namespace pipewright::launch {

/// This node's ranks of one attempt: started together, their output read, stopped together. Each is
/// a process group; the group is what is stopped, so that what a rank started goes with it.
class LocalRanks {
 public:
  /// A rank whose own process has ended.
  struct Ended {
    int local_rank = 0;
    ExitStatus status;
  };

  LocalRanks(const LaunchOptions& options, Sink& sink);
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;
  LocalRanks(LocalRanks&&) = delete;
  LocalRanks& operator=(LocalRanks&&) = delete;

  /// Starts all of them; none may be left of an earlier attempt. Throws CannotExecute,
  /// InvalidArgument (logs) or Error; then those that were started wait to be stopped.
  void start(const Start& start, const std::string& log_folder);

  /// Pipes to read from, and the sink where it waits.
  void watch(PollSet& set);

  /// After SIGCHLD: takes note of what ended, and returns the ranks among it.
  std::vector<Ended> reap();

  /// Asks every process to end with `signal`, and once the grace has passed makes them.
  void stop(int signal, TimePoint now);
  /// Makes them end at once.
  void kill_all(TimePoint now);
  /// Does what is due; call when `next_deadline` has come.
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline(TimePoint now) const;

  /// No process of the attempt is left (also before the first). Logs are complete then.
  bool all_gone() const;
  /// Every rank has ended with 0.
  bool all_succeeded() const;
  /// The last lines of a rank's log, as a text for people; what it wrote so far is in it.
  std::string tail_text(int local_rank);
  /// "stopped: rank 1, rank 2 (had to be killed)"; empty where none had to be stopped.
  std::string stopped_text() const;

 private:
  struct Rank {
    Process process;
    RankLog log;
    std::optional<ExitStatus> ended;
    bool gone = false;         // its process group is empty
    bool was_asked = false;    // to end, while it ran
    bool was_made_to = false;  // it had to be killed for it
    bool trouble_told = false;
  };

  int global(const Rank& rank) const;
  /// Reads once; false where there is nothing more for now.
  bool read_once(Rank& rank, Stream stream);
  void drain(Rank& rank);
  void note(pid_t pid, int wait_status, std::vector<Ended>& ended);
  void find_empty_groups();
  void close_logs();
  void signal_groups(int signal);

  const LaunchOptions* options_;
  Sink* sink_;
  Guardian guardian_;
  std::vector<Rank> ranks_;
  int first_rank_ = 0;
  bool stopping_ = false;
  std::optional<TimePoint> kill_at_;
  std::optional<TimePoint> give_up_at_;
};

}  // namespace pipewright::launch
