#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "pipewright/transport/transport.h"

namespace pipewright {

/// Another transport between the threads of this process, with links of a set speed: a message
/// occupies the link from its sender to its receiver for its bytes / bandwidth, after those that
/// were sent before it, and is received no sooner than that. Nobody computes for it: as over a
/// network card.
class SlowLink : public Transport {
 public:
  SlowLink(std::unique_ptr<Transport> inner, double bytes_per_second,
           std::chrono::duration<double> deadline);

  void send(int to_rank, const MessageKey& key, Message message) override;
  void expect(int from_rank, const MessageKey& key) override { inner_->expect(from_rank, key); }
  Message receive(int at_rank, int from_rank, const MessageKey& key) override;
  void abort() override;
  void reset() override;

 private:
  using Clock = std::chrono::steady_clock;

  std::unique_ptr<Transport> inner_;
  double bytes_per_second_;
  std::chrono::duration<double> deadline_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool aborted_ = false;
  /// A rank is a thread: until when the link from it to another one is occupied.
  std::map<std::pair<std::thread::id, int>, Clock::time_point> occupied_;
  std::map<std::pair<int, MessageKey>, Clock::time_point> arrives_;
};

}  // namespace pipewright
