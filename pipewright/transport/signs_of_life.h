#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/transport/first_failure.h"
#include "pipewright/transport/store.h"

namespace pipewright {

/// How the processes of a run know of each other while it goes on. One thread talks to the store:
/// it gives this process's signs of life, reads those of the others, tells and learns of failures.
/// Another one watches, since the first waits for ever where the store does not answer. Both may
/// outlive the World that started them.
class SignsOfLife {
 public:
  using Seconds = std::chrono::duration<double>;

  /// `deadline`: who gives no sign for so long is lost.
  SignsOfLife(ProcessPlace place, Seconds deadline);

  /// The threads' work, until end(). talk() says goodbye; where this process keeps the store it
  /// stays until the others have said theirs, or have learnt of the failure.
  void talk(c10d::Store& store);
  void watch();

  /// Ends both, and waits for talk() for as long as is reasonable. False where it has not ended.
  bool end();

  /// Takes note of a failure and tells the others; waits for a moment until they can read it.
  void fail(const std::string& why);

  /// Says which rank this one waits for, -1 for none; waits() tells that of another one. Short
  /// waits are not told.
  void set_waiting(int rank);
  static int waits(c10d::Store& store, int rank);

  FirstFailure& failure() { return failure_; }
  /// Whether a rank has said goodbye.
  bool gone(int rank) const;

 private:
  struct Life {
    std::int64_t pulse = -1;
    Seconds seen{0};     // when the pulse last changed
    bool gone = false;   // with a goodbye
    bool knows = false;  // of the failure
  };

  bool sleep();
  void beat(c10d::Store& store);
  void publish(c10d::Store& store);
  void learn(c10d::Store& store);
  void tell_waiting(c10d::Store& store);
  void look_at(c10d::Store& store, int rank);
  void linger(c10d::Store& store);
  bool all_may_go(Seconds now) const;
  std::optional<std::string> who_is_silent() const;
  std::optional<std::string> tick(Seconds passed);
  std::string stopped_words(Seconds passed) const;
  std::string lost_store_words() const;

  const ProcessPlace place_;
  const Seconds deadline_;
  const Seconds interval_;
  FirstFailure failure_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  bool talked_ = false;  // talk() has ended
  bool told_ = false;    // that this process knows of the failure
  std::optional<std::string> to_publish_;
  /// Time in which this process ran: one that is stopped itself must not blame the others.
  Seconds awake_{0};
  std::chrono::steady_clock::time_point ticked_ = std::chrono::steady_clock::now();
  Seconds stopped_for_{0};  // last, for long enough that others may have given it up
  Seconds stopped_at_{0};
  Seconds store_answered_{0};
  int waiting_ = -1;
  Seconds waiting_since_{0};
  int told_waiting_ = -1;
  std::vector<Life> lives_;
};

}  // namespace pipewright
