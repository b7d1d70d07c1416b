#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "pipewright/transport/transport.h"

namespace pipewright {

/// Ranks are threads of this process; tensors are handed over without a copy.
class InprocTransport : public Transport {
 public:
  /// `spin`: how long a receiver looks again and again before it sleeps. Waking a sleeper costs
  /// some 50 us, which is worth a busy core only where every rank has one.
  InprocTransport(int num_ranks, std::chrono::duration<double> deadline,
                  std::chrono::microseconds spin);

  void send(int to_rank, const MessageKey& key, Message message) override;
  Message receive(int at_rank, const MessageKey& key) override;
  void abort() override;
  void reset() override;

 private:
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable arrived;
    std::map<MessageKey, Message> messages;
    std::atomic<std::uint64_t> num_sent{0};
  };

  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  // by rank
  std::chrono::duration<double> deadline_;
  std::chrono::microseconds spin_;
  std::atomic<bool> aborted_{false};
};

}  // namespace pipewright
