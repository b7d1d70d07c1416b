#include "pipewright/transport/ordered_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "pipewright/base/error.h"
#include "pipewright/base/words.h"
#include "pipewright/transport/tags.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Numbers = std::vector<std::int64_t>;

/// So many numbers of an announcement travel in its first message; more than that are rare.
constexpr std::int64_t kFirstNumbers = 64;
constexpr std::int64_t kMostNumbers = 1 << 20;
constexpr std::size_t kKeyNumbers = 4;
constexpr std::chrono::microseconds kBetweenLooks(50);

torch::Tensor numbers_buffer(std::int64_t count) {
  return torch::zeros({count}, torch::dtype(torch::kInt64));
}

Numbers announcement_of(const MessageKey& key, const MessageHeader& header) {
  Numbers numbers = {static_cast<std::int64_t>(key.kind), key.stage, key.micro_batch, key.index};
  const Numbers more = to_numbers(header);
  numbers.insert(numbers.end(), more.begin(), more.end());
  return numbers;
}

[[noreturn]] void refuse(int process, const char* what) {
  throw TransportError("transport",
                       fmt::format("rank {} announced a message that makes no sense: {}; do all "
                                   "processes run the same program?",
                                   process, what));
}

MessageKey key_from(const Numbers& numbers, int process, int num_stages) {
  constexpr std::int64_t kMostMicroBatches = 1 << 30;
  const auto within = [](std::int64_t number, std::int64_t end) {
    return number >= 0 && number < end;
  };
  if (numbers.size() < kKeyNumbers) refuse(process, "it ends early");
  if (!within(numbers[0], static_cast<int>(MessageKind::kTiedValue) + 1))
    refuse(process, "its kind");
  if (!within(numbers[1], num_stages)) refuse(process, "its stage");
  if (!within(numbers[2], kMostMicroBatches)) refuse(process, "its micro-batch");
  if (!within(numbers[3], kMostMicroBatches)) refuse(process, "its number");
  return {static_cast<MessageKind>(numbers[0]), static_cast<int>(numbers[1]),
          static_cast<int>(numbers[2]), static_cast<int>(numbers[3])};
}

}  // namespace

OrderedTransport::OrderedTransport(World* world, c10::intrusive_ptr<compat::ProcessGroup> group,
                                   TensorGroups tensors, std::vector<int> processes, int rank,
                                   torch::Device device,
                                   const std::vector<torch::Device>& stage_devices,
                                   std::chrono::duration<double> deadline)
    : world_(world),
      group_(group),
      tensors_(std::move(tensors)),
      processes_(processes),
      rank_(rank),
      device_(device),
      num_stages_(static_cast<int>(stage_devices.size())),
      deadline_(deadline),
      blame_(world, processes, rank, deadline),
      gloo_(world, std::move(group), std::move(processes), rank, stage_devices, deadline),
      send_stream_(device),
      take_stream_(device),
      exceptions_(std::uncaught_exceptions()) {
  listener_ = world_->listen([this] { abort(); });
  sender_ = std::thread([this] { serve_sends(); });
  completer_ = std::thread([this] { serve_completions(); });
  taker_ = std::thread([this] { serve_receives(); });
}

OrderedTransport::~OrderedTransport() {
  if (world_->leaves_by_exception(exceptions_)) abort();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  sender_.join();
  completer_.join();
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  waits_.abort();
  taker_.join();
  world_->forget(listener_);
}

bool OrderedTransport::over_gloo(int other_rank, const MessageKey& key) const {
  return other_rank == rank_ || key.kind == MessageKind::kNumbers;
}

compat::ProcessGroup& OrderedTransport::tensors_between(int from_rank, int to_rank) const {
  return blame_.process(from_rank) < blame_.process(to_rank) ? *tensors_.up : *tensors_.down;
}

void OrderedTransport::send(int to_rank, const MessageKey& key, Message message) {
  if (over_gloo(to_rank, key)) return gloo_.send(to_rank, key, std::move(message));
  check_key(key);
  check_tensors(message);
  copy_.depart(&message, device_);
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  outgoing_.push_back({to_rank, key, std::move(message)});
  changed_.notify_all();
}

void OrderedTransport::serve_sends() {
  const UseStream stream(send_stream_);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || aborted_ || !outgoing_.empty(); });
    if (aborted_ || outgoing_.empty()) break;
    const Outgoing next = std::move(outgoing_.front());
    outgoing_.pop_front();
    sending_ = true;
    lock.unlock();
    try {
      put(next);
    } catch (const std::exception& error) {
      blame_.fail_sending(next.to_rank, next.key, blame_.cause(next.to_rank, error.what(), true));
    }
    lock.lock();
    sending_ = false;
    changed_.notify_all();
  }
}

void OrderedTransport::put(const Outgoing& outgoing) {
  Message message = outgoing.message;
  if (!copy_.arrive(&message, device_, deadline_, [this] { return aborted(); }))
    throw TransportError("transport", "a GPU did not finish in time");
  message = plain(std::move(message));
  const MessageHeader header = header_of(message);
  std::vector<torch::Tensor> buffers = {pack_on(message, header, device_)};
  announce(outgoing, header);
  Work work = tensors_between(rank_, outgoing.to_rank)
                  .send(buffers, blame_.process(outgoing.to_rank), /*tag=*/0);
  leave({outgoing.to_rank, outgoing.key, !device_.is_cpu(), buffers[0], std::move(work)});
}

void OrderedTransport::announce(const Outgoing& outgoing, const MessageHeader& header) {
  const Numbers numbers = announcement_of(outgoing.key, header);
  const auto count = static_cast<std::int64_t>(numbers.size());
  const auto all = torch::tensor(numbers, torch::dtype(torch::kInt64));
  const std::int64_t here = std::min(count, kFirstNumbers - 1);
  const auto put_numbers = [&](torch::Tensor buffer, int tag) {
    std::vector<torch::Tensor> tensors = {buffer};
    Work work = group_->send(tensors, blame_.process(outgoing.to_rank), tag);
    leave({outgoing.to_rank, outgoing.key, false, std::move(buffer), std::move(work)});
  };
  torch::Tensor first = numbers_buffer(kFirstNumbers);
  first[0] = count;
  first.slice(0, 1, 1 + here).copy_(all.slice(0, 0, here));
  put_numbers(first, kAnnounceTag);
  if (here < count) put_numbers(all.slice(0, here, count).clone(), kLongAnnounceTag);
}

void OrderedTransport::leave(Leaving leaving) {
  const std::lock_guard lock(mutex_);
  leaving_.push_back(std::move(leaving));
  changed_.notify_all();
}

/// Frees what has arrived. It waits for one after the other, which holds up nobody.
void OrderedTransport::serve_completions() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] {
      return aborted_ || !leaving_.empty() || (ending_ && outgoing_.empty() && !sending_);
    });
    if (aborted_ || leaving_.empty()) break;
    const Leaving first = leaving_.front();
    lock.unlock();
    try {
      wait_for(first.work, first.on_device);
    } catch (const std::exception& error) {
      blame_.fail_sending(first.to_rank, first.key,
                          blame_.cause(first.to_rank, error.what(), true));
    }
    lock.lock();
    leaving_.pop_front();
  }
  leaving_.clear();
}

/// False where it was given up.
bool OrderedTransport::wait_for(const Work& work, bool on_device) {
  if (on_device) return wait_for_device(work);
  return waits_.wait(work, std::chrono::duration_cast<Milliseconds>(deadline_));
}

/// Looks again and again: to wait for a GPU's work is to make a stream wait.
bool OrderedTransport::wait_for_device(const Work& work) {
  const auto start = Clock::now();
  while (!work->isCompleted()) {
    if (aborted()) return false;
    if (Clock::now() - start > deadline_)
      throw TransportError("transport", "Timed out waiting for a GPU");
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

void OrderedTransport::serve_receives() {
  const UseStream stream(take_stream_);
  try {
    while (take_next()) {
    }
  } catch (const std::exception& error) {
    if (stopped() || aborted()) return;
    world_->fail(world_->failure_or(fmt::format("rank {} can take no more messages: {}",
                                                world_->place().rank, first_line(error.what()))));
  }
}

/// False at the end.
bool OrderedTransport::take_next() {
  std::vector<torch::Tensor> buffers = {numbers_buffer(kFirstNumbers)};
  const Work work = group_->recvAnysource(buffers, kAnnounceTag);
  if (!waits_.wait(work, kForEver)) return false;
  take(announced(buffers[0], work->sourceRank()));
  return true;
}

OrderedTransport::Announcement OrderedTransport::announced(const torch::Tensor& first,
                                                           int process) {
  const auto* numbers = first.data_ptr<std::int64_t>();
  const std::int64_t count = numbers[0];
  if (count < 0 || count > kMostNumbers) refuse(process, "its length");
  const std::int64_t here = std::min(count, kFirstNumbers - 1);
  Numbers all(numbers + 1, numbers + 1 + here);
  if (here < count) {
    std::vector<torch::Tensor> rest = {numbers_buffer(count - here)};
    if (!wait_for(group_->recv(rest, process, kLongAnnounceTag), false))
      throw TransportError("transport", "given up");
    const auto* more = rest[0].data_ptr<std::int64_t>();
    all.insert(all.end(), more, more + count - here);
  }
  Announcement next;
  next.from_rank = rank_of(process);
  next.key = key_from(all, process, num_stages_);
  next.header = header_from(Numbers(all.begin() + kKeyNumbers, all.end()));
  return next;
}

int OrderedTransport::rank_of(int process) const {
  const auto found = std::find(processes_.begin(), processes_.end(), process);
  if (found == processes_.end()) refuse(process, "it is of another pipeline");
  return static_cast<int>(found - processes_.begin());
}

/// On a GPU the rank's stream will wait for it, on the CPU this thread does.
void OrderedTransport::take(const Announcement& next) {
  const auto bytes = torch::dtype(torch::kByte).device(device_);
  std::vector<torch::Tensor> buffers = {torch::empty({next.header.buffer_bytes()}, bytes)};
  const Work work = tensors_between(next.from_rank, rank_)
                        .recv(buffers, blame_.process(next.from_rank), /*tag=*/0);
  Arrived arrived;
  arrived.buffer = buffers[0];
  arrived.message = unpack(arrived.buffer, next.header);
  if (device_.is_cpu()) {
    if (!wait_for(work, false)) throw TransportError("transport", "given up");
  } else {
    work->wait();  // makes this thread's stream wait
    auto done = std::make_shared<c10::Event>(device_.type());
    done->record(take_stream_.stream());
    arrived.message.ready = {std::move(done)};
  }
  const std::lock_guard lock(mutex_);
  arrived_[{next.from_rank, next.key}].push_back(std::move(arrived));
  changed_.notify_all();
}

void OrderedTransport::expect(int from_rank, const MessageKey& key) {
  if (over_gloo(from_rank, key)) gloo_.expect(from_rank, key);
}

Message OrderedTransport::receive(int at_rank, int from_rank, const MessageKey& key) {
  if (over_gloo(from_rank, key)) return gloo_.receive(at_rank, from_rank, key);
  Arrived arrived;
  {
    world_->set_waiting(blame_.process(from_rank));
    std::unique_lock lock(mutex_);
    auto& waiting = arrived_[{from_rank, key}];
    const bool in_time =
        changed_.wait_for(lock, deadline_, [&] { return aborted_ || !waiting.empty(); });
    if (waiting.empty() || aborted_) {
      const bool late = !in_time;
      lock.unlock();
      const std::string cause =
          late ? blame_.late(from_rank, false) : blame_.cause(from_rank, "", false);
      if (late) world_->fail(cause);
      blame_.give_up(from_rank, key, cause);
    }
    arrived = std::move(waiting.front());
    waiting.pop_front();
  }
  world_->set_waiting(-1);
  // The memory is the buffer's, and must outlive this stream's use of it.
  if (!device_.is_cpu()) arrived.buffer.record_stream(current_stream(device_));
  const bool there = copy_.arrive(&arrived.message, device_, deadline_,
                                  [this] { return world_->failure().has_value(); });
  if (!there) blame_.give_up(from_rank, key, "a GPU did not finish in time");
  return std::move(arrived.message);
}

bool OrderedTransport::aborted() const {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

bool OrderedTransport::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void OrderedTransport::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }
  waits_.abort();
  if (!device_.is_cpu()) {  // their kernels would wait for ever
    compat::abort_group(*tensors_.up);
    compat::abort_group(*tensors_.down);
  }
  gloo_.abort();
}

void OrderedTransport::reset() {}

}  // namespace pipewright
