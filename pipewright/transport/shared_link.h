#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <mutex>

#include "pipewright/transport/shared_memory.h"
#include "pipewright/transport/wire.h"

namespace pipewright {

// Messages from one process to another of the same machine, through memory that both have:
//
//     control    a ring of records: which message, in which slot
//     slots      a message each: a mark that it is in use, its header, its buffer
//
// The sender makes the slots, as many and as large as are in use at a time, in segments of equal
// ones; the receiver copies a message out when it is wanted, and the slot is the sender's again.
// Nothing waits but a receiver.

namespace detail {

struct LinkRecord {
  MessageKey key;
  int file = 0;  // of the segment that its slot is in
  std::uint64_t segment_bytes = 0;
  std::uint64_t slot_at = 0;
  std::uint64_t numbers = 0;  // of the header
  std::uint64_t buffer_bytes = 0;
};

/// So many messages may lie unseen by their receiver. Never are that many under way.
inline constexpr std::uint32_t kMostRecords = 1 << 16;

struct LinkControl {
  alignas(64) std::atomic<std::uint32_t> sent;    // records written so far
  alignas(64) std::atomic<std::uint32_t> seen;    // and read
  alignas(64) std::atomic<std::uint32_t> asleep;  // the receiver wants to be woken
  std::atomic<std::uint32_t> closed;              // nothing more will be sent
  LinkRecord records[kMostRecords];
};

}  // namespace detail

/// The sender's end. Any thread may send.
class SharedOutbox {
 public:
  SharedOutbox() : control_(sizeof(detail::LinkControl)) {}
  /// Tells the receiver that nothing more comes.
  ~SharedOutbox();
  SharedOutbox(const SharedOutbox&) = delete;
  SharedOutbox& operator=(const SharedOutbox&) = delete;

  /// What SharedInbox needs to find it.
  int file() const { return control_.file(); }

  /// A plain message with its tensors on the CPU. Throws TransportError where memory is out, or
  /// where the receiver has not looked for very long.
  void send(const MessageKey& key, const Message& message);

  /// Whether the receiver has all that was sent.
  bool all_taken() const;

  /// Of its segments: files that are open.
  std::size_t num_segments() const;

 private:
  struct Slot {
    const SharedMemory* segment;
    std::size_t at;
  };
  /// Of one size.
  struct Slots {
    std::vector<Slot> all;
    std::size_t next = 0;  // after the last that was given out
  };

  Slot free_slot(std::size_t bytes);
  detail::LinkControl& control() const {
    return *reinterpret_cast<detail::LinkControl*>(control_.data());
  }

  SharedMemory control_;
  mutable std::mutex mutex_;
  std::list<SharedMemory> segments_;
  std::map<std::size_t, Slots> slots_;  // by size
};

/// The receiver's end, for one thread at a time but for wake().
class SharedInbox {
 public:
  /// Nothing where the sender's memory cannot be reached.
  static std::unique_ptr<SharedInbox> open(std::int64_t process, int file);

  /// Whether the message is there.
  bool has(const MessageKey& key);

  /// It, of those with its key the first that was sent; it is there. Throws TransportError where
  /// the sender is gone.
  Message take(const MessageKey& key);

  /// Whether the sender has left; what it sent before may still be taken.
  bool closed() const;

  /// Returns when another message has come, or wake() was called, or the time is over; soon after
  /// in any case. Looks without sleeping for as long as `spin`.
  void wait(std::chrono::microseconds spin, std::chrono::milliseconds most);
  void wake();

 private:
  SharedInbox(std::int64_t process, SharedMemory control)
      : process_(process), control_(std::move(control)) {}
  void look();
  const SharedMemory& segment(const detail::LinkRecord& record);
  detail::LinkControl& control() const {
    return *reinterpret_cast<detail::LinkControl*>(control_.data());
  }

  std::int64_t process_;
  SharedMemory control_;
  std::map<MessageKey, std::deque<detail::LinkRecord>> arrived_;
  std::map<int, SharedMemory> segments_;  // by their files at the sender
};

}  // namespace pipewright
