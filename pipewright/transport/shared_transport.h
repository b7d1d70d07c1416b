#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "pipewright/transport/process_transport.h"
#include "pipewright/transport/shared_link.h"

namespace pipewright {

/// Ranks are processes, with tensors on the CPU. Those of one machine exchange messages through
/// memory that they share, in some microseconds and without threads of their own; all others, and
/// signs of life, go the way of ProcessTransport.
class SharedTransport : public Transport {
 public:
  /// All ranks of `gloo` come here. `processes`, `rank`, `deadline`: as there. `name`: of no other
  /// transport of the world. `spin`: see InprocTransport.
  SharedTransport(World* world, std::unique_ptr<ProcessTransport> gloo, std::vector<int> processes,
                  int rank, const std::string& name, std::chrono::duration<double> deadline,
                  std::chrono::microseconds spin);
  /// What was sent is taken first, or the deadline passes, or the run fails.
  ~SharedTransport() override;

  void send(int to_rank, const MessageKey& key, Message message) override;
  void expect(int from_rank, const MessageKey& key) override;
  Message receive(int at_rank, int from_rank, const MessageKey& key) override;
  /// For good, as of ProcessTransport.
  void abort() override;
  void reset() override {}

  /// How many ranks messages go to by shared memory.
  int num_shared() const;

 private:
  void wait_until_taken();
  void wait_for(SharedInbox* inbox, int from_rank, const MessageKey& key);
  [[noreturn]] void give_up(int from_rank, const MessageKey& key, const std::string& why);

  World* world_;
  std::unique_ptr<ProcessTransport> gloo_;
  Blame blame_;
  std::chrono::duration<double> deadline_;
  std::chrono::microseconds spin_;
  std::vector<std::unique_ptr<SharedOutbox>> to_;   // by rank; null: over gloo_
  std::vector<std::unique_ptr<SharedInbox>> from_;  // the same
  std::atomic<bool> aborted_ = false;
  int exceptions_;  // on their way when this was made
  int listener_ = 0;
};

}  // namespace pipewright
