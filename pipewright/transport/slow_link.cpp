#include "pipewright/transport/slow_link.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

double bytes_of(const Message& message) {
  double bytes = 0;
  for (const auto& tensor : message.tensors) {
    if (tensor.defined()) bytes += static_cast<double>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace

SlowLink::SlowLink(std::unique_ptr<Transport> inner, double bytes_per_second,
                   std::chrono::duration<double> deadline)
    : inner_(std::move(inner)), bytes_per_second_(bytes_per_second), deadline_(deadline) {}

void SlowLink::send(int to_rank, const MessageKey& key, Message message) {
  const std::chrono::duration<double> seconds(bytes_of(message) / bytes_per_second_);
  {
    const std::lock_guard lock(mutex_);
    auto& occupied = occupied_[{std::this_thread::get_id(), to_rank}];
    occupied =
        std::max(occupied, Clock::now()) + std::chrono::duration_cast<Clock::duration>(seconds);
    arrives_[{to_rank, key}] = occupied;
  }
  inner_->send(to_rank, key, std::move(message));
}

Message SlowLink::receive(int at_rank, int from_rank, const MessageKey& key) {
  const auto give_up = Clock::now() + std::chrono::duration_cast<Clock::duration>(deadline_);
  Message message = inner_->receive(at_rank, from_rank, key);
  std::unique_lock lock(mutex_);
  const auto found = arrives_.find({at_rank, key});
  internal_check(found != arrives_.end(), "a message came that nobody sent");
  const auto arrives = found->second;
  arrives_.erase(found);
  woken_.wait_until(lock, std::min(arrives, give_up), [this] { return aborted_; });
  if (aborted_)
    throw TransportError("transport", "the step was given up because another rank failed");
  if (arrives > give_up) {
    throw TransportError(
        "transport",
        fmt::format("rank {} waited {} s for the {} from rank {}, which is on a link of {} bytes a "
                    "second; raise the deadline or link_bandwidth",
                    at_rank, deadline_.count(), to_text(key), from_rank, bytes_per_second_));
  }
  return message;
}

void SlowLink::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  woken_.notify_all();
  inner_->abort();
}

void SlowLink::reset() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = false;
    occupied_.clear();
    arrives_.clear();
  }
  inner_->reset();
}

}  // namespace pipewright
