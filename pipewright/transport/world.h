#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "pipewright/transport/environment.h"
#include "pipewright/transport/signs_of_life.h"

namespace pipewright {

struct WorldOptions {
  /// A process that gives no sign of life for so long is lost.
  std::chrono::duration<double> deadline{30};
  /// So long all wait for each other at the start; processes of one run do not start at one moment.
  std::chrono::duration<double> start_deadline{30};
  /// Of this machine, where the others reach it. Empty: loopback where the master's is, else the
  /// address from which the master is reached.
  std::string address = {};
};

/// The processes of a run. They find each other by a store that rank 0 keeps, show signs of life
/// there, and learn there of the first failure of the run: whoever waits for anything is then woken
/// and told which process failed, and why. A process may have one after the other, as often as all
/// others do. From its first one on a process ignores SIGPIPE, unless the program has a handler of
/// its own for it.
class World {
 public:
  /// All processes must come here; returns when all have. Throws TransportError naming those who
  /// did not come, or whose number of ranks is another; InvalidArgument for an environment that is
  /// wrong.
  World(ProcessPlace place, WorldOptions options);
  /// Says goodbye: from then on nobody misses this process. Where an exception is on its way
  /// through, tells the others that the run has failed.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  World(World&&) = delete;
  World& operator=(World&&) = delete;

  const ProcessPlace& place() const { return place_; }
  const std::string& address() const { return address_; }
  std::chrono::duration<double> deadline() const { return options_.deadline; }

  /// A part of the store under a name of its own. Its calls may wait for ever: see guarded().
  StorePtr store(const std::string& name) const;

  /// Runs a call that waits for other processes. Throws TransportError where the run fails or the
  /// deadline passes before it returns; it is then left behind on its thread, and so must own all
  /// that it uses. `what`: "the connections to all ranks".
  void guarded(const std::string& what, std::chrono::duration<double> deadline,
               std::function<void()> call) const;

  /// Texts between processes, each under a key of its own: any process posts one, any may wait for
  /// it. From any thread.
  void post(const std::string& key, const std::string& text) const;
  /// `rank` is the process that posts it. Throws TransportError naming that where it has not come
  /// within the deadline, or where the run has failed.
  std::string wait_for_text(const std::string& key, int rank,
                            std::chrono::duration<double> deadline) const;
  /// Nobody waits for it any more.
  void forget_text(const std::string& key) const;

  /// Tells all processes that the run has failed; of several failures the first counts. Waits for a
  /// moment at most, until the others can read it: this process may end right after.
  void fail(const std::string& why);

  /// Tells all processes that this one leaves because of an exception in its program, where there
  /// are more on their way than there were, and says so. For destructors.
  bool leaves_by_exception(int exceptions_before);

  /// What is known of the run's failure.
  std::optional<std::string> failure() const;

  /// The failure, waiting for a moment if it is not known: a connection that breaks is noticed
  /// before the reason arrives.
  std::string failure_or(const std::string& else_this) const;

  /// Which process this one waits for, -1 for none. The chain follows what they wait for from one
  /// to the next: its last one waits for nobody.
  void set_waiting(int rank) const { signs_->set_waiting(rank); }
  std::vector<int> chain_of_waits(int first) const;

  /// Whether a rank has said goodbye.
  bool gone(int rank) const { return signs_->gone(rank); }

  /// Calls `wake` (from another thread, or at once) when the run has failed. The number is for
  /// forget().
  int listen(std::function<void()> wake);
  void forget(int listener);

 private:
  ProcessPlace place_;
  WorldOptions options_;
  std::string address_;
  int exceptions_;  // on their way when this was made
  StorePtr store_;
  std::shared_ptr<SignsOfLife> signs_;
  std::thread talk_;
  std::thread watch_;
};

}  // namespace pipewright
