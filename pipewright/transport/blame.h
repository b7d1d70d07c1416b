#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "pipewright/transport/transport.h"
#include "pipewright/transport/world.h"

namespace pipewright {

/// The words for a wait of one rank for another that came to nothing, the same whatever messages
/// travel over. Any thread may call at any time.
class Blame {
 public:
  /// `processes`: which process of the world each rank is; `rank`: this process's. `deadline`: of
  /// a wait for a process that lives.
  Blame(World* world, std::vector<int> processes, int rank, std::chrono::duration<double> deadline)
      : world_(world), processes_(std::move(processes)), rank_(rank), deadline_(deadline) {}

  int process(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }

  /// Who is to blame: the run's first failure if there is one, else the other rank. `why`: what the
  /// connection says; empty: the wait was given up.
  std::string cause(int other_rank, const std::string& why, bool sending) const;
  /// The same for a wait that came to its deadline. Known for sure, and told at once: the others
  /// see this rank's connections close. A rank that waits itself is not to blame.
  std::string late(int other_rank, bool sending) const;

  /// Throws TransportError with the cause and what was waited for.
  [[noreturn]] void give_up(int from_rank, const MessageKey& key, const std::string& cause) const;
  /// Tells the run that a message could not be sent.
  void fail_sending(int to_rank, const MessageKey& key, const std::string& cause) const;

 private:
  World* world_;
  std::vector<int> processes_;
  int rank_;
  std::chrono::duration<double> deadline_;
};

/// How a lost process is told of.
std::string lost_words(int process, const std::string& why);

}  // namespace pipewright
