#include "pipewright/transport/process_transport.h"

#include <fmt/format.h>

#include <exception>

#include "pipewright/base/error.h"
#include "pipewright/transport/tags.h"

namespace pipewright {
namespace {

using Milliseconds = std::chrono::milliseconds;

/// So many numbers of a header travel in its first message; more than that are rare.
constexpr std::int64_t kHeaderNumbers = 64;

torch::Tensor numbers_buffer(std::int64_t count) {
  return torch::zeros({count}, torch::dtype(torch::kInt64));
}

}  // namespace

ProcessTransport::ProcessTransport(World* world, c10::intrusive_ptr<compat::ProcessGroup> group,
                                   std::vector<int> processes, int rank,
                                   std::vector<torch::Device> stage_devices,
                                   std::chrono::duration<double> deadline)
    : world_(world),
      group_(std::move(group)),
      num_ranks_(static_cast<int>(processes.size())),
      rank_(rank),
      stage_devices_(stage_devices),
      deadline_(deadline),
      blame_(world, std::move(processes), rank, deadline),
      self_(num_ranks_, std::move(stage_devices), deadline, std::chrono::microseconds(0)),
      exceptions_(std::uncaught_exceptions()) {
  listener_ = world_->listen([this] { abort(); });
  sender_ = std::thread([this] { serve_sends(); });
  completer_ = std::thread([this] { serve_completions(); });
  lifelines_ = std::make_unique<Lifelines>(world_, group_);
}

ProcessTransport::~ProcessTransport() {
  if (world_->leaves_by_exception(exceptions_)) abort();
  {
    std::unique_lock lock(mutex_);
    ending_ = true;  // what was sent is on its way before the threads end
    changed_.notify_all();
  }
  sender_.join();
  completer_.join();
  lifelines_.reset();  // goodbye
  world_->forget(listener_);
}

void ProcessTransport::send(int to_rank, const MessageKey& key, Message message) {
  if (to_rank == rank_) return self_.send(to_rank, key, std::move(message));
  check_key(key);
  check_tensors(message);
  copy_.depart(&message, torch::kCPU);
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  outgoing_.push_back({to_rank, key, std::move(message)});
  changed_.notify_all();
}

void ProcessTransport::serve_sends() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || aborted_ || !outgoing_.empty(); });
    if (aborted_ || outgoing_.empty()) break;
    const Outgoing next = std::move(outgoing_.front());
    outgoing_.pop_front();
    sending_ = true;
    lock.unlock();
    try {
      put_message(next);
    } catch (const std::exception& error) {
      fail_sending(next.to_rank, next.key, error.what());
    }
    lock.lock();
    sending_ = false;
    changed_.notify_all();
  }
}

/// Frees what has arrived. It waits for one after the other, which holds up nobody.
void ProcessTransport::serve_completions() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] {
      return aborted_ || !leaving_.empty() || (ending_ && outgoing_.empty() && !sending_);
    });
    if (aborted_ || leaving_.empty()) break;
    const Leaving first = leaving_.front();
    lock.unlock();
    try {
      wait_for(first.posted.work);
    } catch (const std::exception& error) {
      fail_sending(first.to_rank, first.key, error.what());
    }
    lock.lock();
    leaving_.pop_front();
  }
  leaving_.clear();
}

void ProcessTransport::fail_sending(int to_rank, const MessageKey& key, const std::string& why) {
  blame_.fail_sending(to_rank, key, blame_.cause(to_rank, why, true));
}

void ProcessTransport::put_message(const Outgoing& outgoing) {
  Message message = outgoing.message;
  if (!copy_.arrive(&message, torch::kCPU, deadline_, [this] { return aborted(); }))
    throw TransportError("transport", "a GPU did not finish in time");
  message = plain(std::move(message));
  const MessageHeader header = header_of(message);
  const auto known = sent_.find({outgoing.to_rank, outgoing.key});
  const bool as_expected = known != sent_.end() && known->second == header;
  if (!as_expected) {
    if (known != sent_.end()) {
      put(outgoing.to_rank, outgoing.key, Part::kBuffer,
          changed_buffer(known->second.buffer_bytes()));
    }
    put_header(outgoing, header);
    sent_[{outgoing.to_rank, outgoing.key}] = header;
  }
  put(outgoing.to_rank, outgoing.key, as_expected ? Part::kBuffer : Part::kLateBuffer,
      pack(message, header));
  const std::lock_guard lock(mutex_);
  for (const TensorHeader& tensor : header.tensors) traffic_.payload_bytes += tensor.span_bytes();
}

void ProcessTransport::put_header(const Outgoing& outgoing, const MessageHeader& header) {
  const std::vector<std::int64_t> numbers = to_numbers(header);
  const auto count = static_cast<std::int64_t>(numbers.size());
  const auto all = torch::tensor(numbers, torch::dtype(torch::kInt64));
  torch::Tensor first = numbers_buffer(kHeaderNumbers);
  first[0] = count;
  const std::int64_t here = std::min(count, kHeaderNumbers - 1);
  first.slice(0, 1, 1 + here).copy_(all.slice(0, 0, here));
  put(outgoing.to_rank, outgoing.key, Part::kHeader, first);
  if (here < count)
    put(outgoing.to_rank, outgoing.key, Part::kLongHeader, all.slice(0, here, count).clone());
}

void ProcessTransport::put(int to_rank, const MessageKey& key, Part part, torch::Tensor buffer) {
  std::vector<torch::Tensor> tensors = {buffer};
  Work work =
      group_->send(tensors, blame_.process(to_rank), tag_of(key, static_cast<std::uint8_t>(part)));
  const std::lock_guard lock(mutex_);
  ++traffic_.messages;
  traffic_.bytes += static_cast<std::int64_t>(buffer.nbytes());
  leaving_.push_back({to_rank, key, {std::move(buffer), std::move(work)}});
  changed_.notify_all();
}

ProcessTransport::Posted ProcessTransport::post(int from_rank, const MessageKey& key, Part part,
                                                torch::Tensor buffer) {
  const int tag = tag_of(key, static_cast<std::uint8_t>(part));
  std::vector<torch::Tensor> tensors = {buffer};
  try {
    Work work = group_->recv(tensors, blame_.process(from_rank), tag);
    return {std::move(buffer), std::move(work)};
  } catch (const std::exception& error) {  // the connection is broken already
    give_up(from_rank, key, error.what());
  }
}

/// What comes first of a message: its buffer where it is known how large that is.
ProcessTransport::Posted ProcessTransport::post_first(int from_rank, const MessageKey& key) {
  const auto known = received_.find({from_rank, key});
  if (known == received_.end())
    return post(from_rank, key, Part::kHeader, numbers_buffer(kHeaderNumbers));
  return post(from_rank, key, Part::kBuffer,
              torch::empty({known->second.buffer_bytes()}, torch::dtype(torch::kByte)));
}

void ProcessTransport::expect(int from_rank, const MessageKey& key) {
  if (from_rank == rank_ || posted_.contains({from_rank, key})) return;
  posted_.emplace(Address{from_rank, key}, post_first(from_rank, key));
}

Message ProcessTransport::receive(int at_rank, int from_rank, const MessageKey& key) {
  if (from_rank == rank_) return self_.receive(at_rank, from_rank, key);
  if (!posted_.contains({from_rank, key})) expect(from_rank, key);
  Posted first = std::move(posted_.extract({from_rank, key}).mapped());
  auto known = received_.find({from_rank, key});
  torch::Tensor buffer;
  if (known != received_.end()) {
    wait(first, from_rank, key);
    if (mark_of(first.buffer) == Mark::kAsExpected) buffer = first.buffer;
  }
  if (!buffer.defined()) {
    if (known != received_.end())
      first = post(from_rank, key, Part::kHeader, numbers_buffer(kHeaderNumbers));
    const MessageHeader header = receive_header(std::move(first), from_rank, key);
    known = received_.insert_or_assign(Address{from_rank, key}, header).first;
    const Posted late = post(from_rank, key, Part::kLateBuffer,
                             torch::empty({header.buffer_bytes()}, torch::dtype(torch::kByte)));
    wait(late, from_rank, key);
    buffer = late.buffer;
  }
  Message message = unpack(buffer, known->second);
  const torch::Device device = device_of(key, stage_devices_);
  copy_.depart(&message, device);
  if (!copy_.arrive(&message, device, deadline_, [this] { return world_->failure().has_value(); }))
    give_up(from_rank, key, "a GPU did not finish in time");
  return message;
}

MessageHeader ProcessTransport::receive_header(Posted first, int from_rank, const MessageKey& key) {
  wait(first, from_rank, key);
  const auto* numbers = first.buffer.data_ptr<std::int64_t>();
  const std::int64_t count = numbers[0];
  constexpr std::int64_t kMost = 1 << 20;
  if (count < 0 || count > kMost) give_up(from_rank, key, "a header of an impossible length");
  const std::int64_t here = std::min(count, kHeaderNumbers - 1);
  std::vector<std::int64_t> all(numbers + 1, numbers + 1 + here);
  if (here < count) {
    const Posted rest = post(from_rank, key, Part::kLongHeader, numbers_buffer(count - here));
    wait(rest, from_rank, key);
    const auto* more = rest.buffer.data_ptr<std::int64_t>();
    all.insert(all.end(), more, more + count - here);
  }
  return header_from(all);
}

/// False where it was given up.
bool ProcessTransport::wait_for(const Work& work) {
  return waits_.wait(work, std::chrono::duration_cast<Milliseconds>(deadline_));
}

void ProcessTransport::wait(const Posted& posted, int from_rank, const MessageKey& key) {
  std::string why;
  world_->set_waiting(blame_.process(from_rank));
  try {
    if (wait_for(posted.work)) {
      world_->set_waiting(-1);
      return;
    }
  } catch (const std::exception& error) {
    why = error.what();
  }
  give_up(from_rank, key, why);
}

/// A wait that was given up says nothing.
void ProcessTransport::give_up(int from_rank, const MessageKey& key, const std::string& why) {
  const std::string cause = blame_.cause(from_rank, why, false);
  if (!why.empty()) world_->fail(cause);
  blame_.give_up(from_rank, key, cause);
}

bool ProcessTransport::aborted() const {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

void ProcessTransport::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }
  waits_.abort();
  self_.abort();
}

void ProcessTransport::reset() {}

Traffic ProcessTransport::sent() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

}  // namespace pipewright
