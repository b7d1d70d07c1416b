#include "pipewright/transport/inproc.h"

#include <fmt/format.h>

#include <optional>
#include <thread>

#include "pipewright/base/error.h"

namespace pipewright {

using Clock = std::chrono::steady_clock;

std::string to_text(const MessageKey& key) {
  static constexpr const char* kNames[] = {"activation",
                                           "gradient",
                                           "skip",
                                           "skip gradient",
                                           "numbers",
                                           "gradient of a tied weight",
                                           "value of a tied weight"};
  const char* name = kNames[static_cast<int>(key.kind)];
  if (key.kind == MessageKind::kNumbers) return fmt::format("{} of rank {}", name, key.index);
  if (key.kind > MessageKind::kNumbers) return fmt::format("{} for stage {}", name, key.stage);
  return fmt::format("{} of micro-batch {} for stage {}", name, key.micro_batch, key.stage);
}

torch::Device device_of(const MessageKey& key, const std::vector<torch::Device>& stage_devices) {
  if (key.kind == MessageKind::kNumbers) return torch::kCPU;
  return stage_devices[static_cast<std::size_t>(key.stage)];
}

InprocTransport::InprocTransport(int num_ranks, std::vector<torch::Device> stage_devices,
                                 std::chrono::duration<double> deadline,
                                 std::chrono::microseconds spin)
    : stage_devices_(std::move(stage_devices)), deadline_(deadline), spin_(spin) {
  for (int rank = 0; rank < num_ranks; ++rank) mailboxes_.push_back(std::make_unique<Mailbox>());
}

void InprocTransport::send(int to_rank, const MessageKey& key, Message message) {
  Mailbox& box = *mailboxes_[static_cast<std::size_t>(to_rank)];
  copy_.depart(&message, device_of(key, stage_devices_));
  {
    const std::lock_guard lock(box.mutex);
    const bool fresh = box.messages.try_emplace(key, std::move(message)).second;
    internal_check(fresh, "a message was sent twice");
    box.num_sent.fetch_add(1, std::memory_order_release);
  }
  box.arrived.notify_one();
}

Message InprocTransport::receive(int at_rank, int from_rank, const MessageKey& key) {
  Message message = take(*mailboxes_[static_cast<std::size_t>(at_rank)], at_rank, from_rank, key);
  const torch::Device device = device_of(key, stage_devices_);
  if (!copy_.arrive(&message, device, deadline_, [this] { return aborted_.load(); }))
    give_up(at_rank, from_rank, key);
  return message;
}

void InprocTransport::give_up(int rank, int from_rank, const MessageKey& key) const {
  if (aborted_.load())
    throw TransportError("transport", "the step was given up because another rank failed");
  throw TransportError(
      "transport",
      fmt::format("rank {} waited {} s for the {} from rank {}; raise the deadline if a stage is "
                  "that slow",
                  rank, deadline_.count(), to_text(key), from_rank));
}

Message InprocTransport::take(Mailbox& box, int rank, int from_rank, const MessageKey& key) {
  const auto find = [&]() -> std::optional<Message> {
    const auto found = box.messages.find(key);
    if (found == box.messages.end()) return std::nullopt;
    Message message = std::move(found->second);
    box.messages.erase(found);
    return message;
  };
  const auto start = Clock::now();
  std::unique_lock lock(box.mutex);
  if (auto message = find()) return std::move(*message);
  while (Clock::now() - start < spin_ && !aborted_.load(std::memory_order_relaxed)) {
    const auto seen = box.num_sent.load(std::memory_order_acquire);
    lock.unlock();
    while (box.num_sent.load(std::memory_order_acquire) == seen && Clock::now() - start < spin_ &&
           !aborted_.load(std::memory_order_relaxed)) {
      std::this_thread::yield();
    }
    lock.lock();
    if (auto message = find()) return std::move(*message);
  }
  std::optional<Message> message;
  box.arrived.wait_for(lock, deadline_, [&] {
    if (aborted_.load()) return true;
    message = find();
    return message.has_value();
  });
  if (!message) give_up(rank, from_rank, key);
  return std::move(*message);
}

void InprocTransport::abort() {
  aborted_.store(true);
  for (auto& box : mailboxes_) {
    const std::lock_guard lock(box->mutex);  // a waiter is either before its test or asleep
    box->arrived.notify_all();
  }
}

void InprocTransport::reset() {
  aborted_.store(false);
  for (auto& box : mailboxes_) box->messages.clear();
}

}  // namespace pipewright
