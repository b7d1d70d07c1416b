#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace pipewright {

/// What a worker gets from the test that started it.
using Arguments = std::map<std::string, std::string>;

/// A function that a process of its own runs: the test program starts itself again for it. Throwing
/// ends the process with 1 and the message on its standard error.
struct Worker {
  Worker(std::string name, std::function<void(const Arguments&)> work);
};

/// A port that is free on loopback.
int free_port();

/// The processes of a test, each with the environment that a launcher gives.
class Processes {
 public:
  /// Starts `count` processes that run the worker. Further variables of the environment may be
  /// given, e.g. another WORLD_SIZE, for all or by rank; and a command that runs the program, e.g.
  /// in a network of its own.
  Processes(const std::string& worker, int count, const Arguments& arguments,
            const Arguments& environment = {}, const std::map<int, Arguments>& by_rank = {},
            const std::map<int, std::vector<std::string>>& command_by_rank = {});
  /// Kills those that still run.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  Processes(Processes&&) = delete;
  Processes& operator=(Processes&&) = delete;

  pid_t pid(int rank) const { return ranks_[static_cast<std::size_t>(rank)].pid; }
  void signal(int rank, int number) const;

  /// Waits for a process to end; its status as shells count, 128 + the signal that killed it. One
  /// that does not end within a minute is killed, and the test fails.
  int wait(int rank);
  /// Whether it still runs.
  bool runs(int rank);
  /// What it wrote to its standard error.
  std::string words(int rank) const;

  /// Waits for all, and expects that all end well.
  void expect_success();

  /// Of their master.
  const std::string& port() const { return port_; }

  /// A folder of the test's own, for results; removed at the end.
  const std::string& folder() const { return folder_; }

 private:
  struct Rank {
    pid_t pid = -1;
    int status = -1;  // -1: it runs
  };
  std::string folder_;
  std::string port_ = std::to_string(free_port());
  std::vector<Rank> ranks_;
};

/// Waits until `holds`, a minute at most: then the test fails.
bool eventually(const std::function<bool()>& holds, const std::string& what);

/// In a worker: the folder of the test.
std::string result_folder();

}  // namespace pipewright
