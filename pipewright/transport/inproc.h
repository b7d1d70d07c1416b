#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "pipewright/transport/device_copy.h"
#include "pipewright/transport/transport.h"

namespace pipewright {

/// Ranks are threads of this process; tensors are handed over without a copy on one device, and
/// with one that nobody waits for between devices.
class InprocTransport : public Transport {
 public:
  /// `stage_devices`: where each stage wants what is sent to it. `spin`: how long a receiver looks
  /// again and again before it sleeps. Waking a sleeper costs some 50 us, which is worth a busy
  /// core only where every rank has one.
  InprocTransport(int num_ranks, std::vector<torch::Device> stage_devices,
                  std::chrono::duration<double> deadline, std::chrono::microseconds spin);

  void send(int to_rank, const MessageKey& key, Message message) override;
  Message receive(int at_rank, int from_rank, const MessageKey& key) override;
  void abort() override;
  void reset() override;

 private:
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable arrived;
    std::map<MessageKey, Message> messages;
    std::atomic<std::uint64_t> num_sent{0};
  };

  [[noreturn]] void give_up(int rank, int from_rank, const MessageKey& key) const;
  Message take(Mailbox& box, int rank, int from_rank, const MessageKey& key);

  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  // by rank
  std::vector<torch::Device> stage_devices_;
  DeviceCopy copy_;
  std::chrono::duration<double> deadline_;
  std::chrono::microseconds spin_;
  std::atomic<bool> aborted_{false};
};

}  // namespace pipewright
