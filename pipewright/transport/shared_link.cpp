#include "pipewright/transport/shared_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

using detail::kMostRecords;
using detail::LinkControl;
using detail::LinkRecord;

/// At the front of a slot: whether a message is in it. What follows begins at a multiple of this.
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLeastSlot = 4096;

using Flag = std::atomic<std::uint32_t>;
static_assert(Flag::is_always_lock_free, "processes share it");

Flag& in_use(const SharedMemory& segment, std::size_t at) {
  return *reinterpret_cast<Flag*>(segment.data() + at);
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Where a message's buffer begins.
std::size_t buffer_at(std::size_t numbers) {
  return kAlignment + aligned(numbers * sizeof(std::int64_t));
}

}  // namespace

/// Slots come back in about the order they went. Where all are in use their number is doubled, in
/// one segment: files stay few.
SharedOutbox::Slot SharedOutbox::free_slot(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kLeastSlot));
  Slots& slots = slots_[size];
  const std::size_t count = slots.all.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t index = (slots.next + i) % count;
    const Slot& slot = slots.all[index];
    if (in_use(*slot.segment, slot.at).load(std::memory_order_acquire) != 0) continue;
    slots.next = index + 1;
    return slot;
  }
  const std::size_t more = std::max<std::size_t>(1, count);
  const SharedMemory& segment = segments_.emplace_back(more * size);
  for (std::size_t i = 0; i < more; ++i) slots.all.push_back({&segment, i * size});
  slots.next = count + 1;
  return slots.all[count];
}

void SharedOutbox::send(const MessageKey& key, const Message& message) {
  const MessageHeader header = header_of(message);
  const std::vector<std::int64_t> numbers = to_numbers(header);
  const auto buffer_bytes = static_cast<std::size_t>(header.buffer_bytes());
  const std::size_t at = buffer_at(numbers.size());
  const std::lock_guard lock(mutex_);
  LinkControl& shared = control();
  const std::uint32_t next = shared.sent.load(std::memory_order_relaxed);
  if (next - shared.seen.load(std::memory_order_acquire) >= kMostRecords) {
    throw TransportError("transport", fmt::format("{} messages wait for a rank that does not take "
                                                  "them",
                                                  kMostRecords));
  }
  const Slot slot = free_slot(at + buffer_bytes);
  char* data = slot.segment->data() + slot.at;
  std::memcpy(data + kAlignment, numbers.data(), numbers.size() * sizeof(std::int64_t));
  pack_into(message, header, data + at);
  in_use(*slot.segment, slot.at).store(1, std::memory_order_relaxed);
  shared.records[next % kMostRecords] = {key,     slot.segment->file(), slot.segment->bytes(),
                                         slot.at, numbers.size(),       buffer_bytes};
  shared.sent.store(next + 1, std::memory_order_seq_cst);
  if (shared.asleep.exchange(0, std::memory_order_seq_cst) != 0) wake_all(&shared.sent);
}

SharedOutbox::~SharedOutbox() {
  control().closed.store(1);
  wake_all(&control().sent);
}

bool SharedOutbox::all_taken() const {
  const std::lock_guard lock(mutex_);
  if (control().sent.load() != control().seen.load()) return false;
  for (const auto& [size, slots] : slots_) {
    for (const Slot& slot : slots.all) {
      if (in_use(*slot.segment, slot.at).load(std::memory_order_acquire) != 0) return false;
    }
  }
  return true;
}

std::size_t SharedOutbox::num_segments() const {
  const std::lock_guard lock(mutex_);
  return segments_.size();
}

std::unique_ptr<SharedInbox> SharedInbox::open(std::int64_t process, int file) {
  auto control = SharedMemory::of(process, file, sizeof(LinkControl));
  if (!control) return nullptr;
  return std::unique_ptr<SharedInbox>(new SharedInbox(process, std::move(*control)));
}

/// Reads the new records.
void SharedInbox::look() {
  LinkControl& shared = control();
  std::uint32_t next = shared.seen.load(std::memory_order_relaxed);
  for (; next != shared.sent.load(std::memory_order_acquire); ++next) {
    const LinkRecord record = shared.records[next % kMostRecords];
    arrived_[record.key].push_back(record);
    shared.seen.store(next + 1, std::memory_order_release);
  }
}

bool SharedInbox::has(const MessageKey& key) {
  if (arrived_.contains(key)) return true;
  look();
  return arrived_.contains(key);
}

const SharedMemory& SharedInbox::segment(const LinkRecord& record) {
  const auto known = segments_.find(record.file);
  if (known != segments_.end()) return known->second;
  auto memory = SharedMemory::of(process_, record.file, record.segment_bytes);
  if (!memory)
    throw TransportError("transport", "the process that sent it is gone, and what it sent too");
  return segments_.emplace(record.file, std::move(*memory)).first->second;
}

Message SharedInbox::take(const MessageKey& key) {
  const auto found = arrived_.find(key);
  internal_check(found != arrived_.end(), "a message was taken that is not there");
  const LinkRecord record = found->second.front();
  found->second.pop_front();
  if (found->second.empty()) arrived_.erase(found);
  const SharedMemory& from = segment(record);
  const char* data = from.data() + record.slot_at;
  const auto* numbers = reinterpret_cast<const std::int64_t*>(data + kAlignment);
  const MessageHeader header = header_from({numbers, numbers + record.numbers});
  const auto buffer = torch::empty({static_cast<std::int64_t>(record.buffer_bytes)}, torch::kByte);
  std::memcpy(buffer.data_ptr(), data + buffer_at(record.numbers), record.buffer_bytes);
  in_use(from, record.slot_at).store(0, std::memory_order_release);
  return unpack(buffer, header);
}

bool SharedInbox::closed() const { return control().closed.load() != 0; }

void SharedInbox::wait(std::chrono::microseconds spin, std::chrono::milliseconds most) {
  LinkControl& shared = control();
  const std::uint32_t seen = shared.seen.load(std::memory_order_relaxed);
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < spin) {
    if (shared.sent.load(std::memory_order_acquire) != seen) return;
    std::this_thread::yield();
  }
  shared.asleep.store(1, std::memory_order_seq_cst);
  if (shared.sent.load(std::memory_order_seq_cst) == seen) sleep_on(&shared.sent, seen, most);
}

void SharedInbox::wake() { wake_all(&control().sent); }

}  // namespace pipewright
