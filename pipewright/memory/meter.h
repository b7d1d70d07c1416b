#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace pipewright {

struct MemoryStats {
  std::int64_t live_bytes = 0;
  std::int64_t peak_bytes = 0;
};

/// Live and peak bytes of tensors by slot (a rank, a stage: whatever the caller numbers), without a
/// change to the user's code. There is one meter a process.
///
/// CPU memory is charged to the slot of the innermost MemoryScope of the thread that allocates it;
/// CUDA memory to the slot of the stream it is allocated on, since CUDA's backward runs on
/// LibTorch's own threads. Wherever it is freed, it is credited to the slot that was charged.
/// Counted are the bytes asked for, not what allocators round up or cache, nor what libraries take
/// for themselves. (cuBLAS asks LibTorch: its workspace, 65 MiB a stream on an H200, is counted.)
class MemoryMeter {
 public:
  static constexpr int kMaxSlots = 4096;
  static constexpr int kOutside = -1;  // the slot of threads outside every scope, and other streams

  /// Starts to meter CPU memory; what was allocated before stays uncounted. Again: does nothing.
  /// LibTorch asks that its allocator be set while no other thread allocates.
  static void install();

  /// Puts back the allocator that was there before. At any time: what is metered stays so until it
  /// is freed.
  static void uninstall();

  /// Charges CUDA memory allocated on `stream` from now on to `slot`. A rank that shares its slot
  /// between stream and scopes sees the sum of both memories. Throws InvalidArgument in a build
  /// without CUDA.
  static void charge_stream(c10::Stream stream, int slot);

  /// A slot that nobody has and that holds nothing. What is charged to it is charged to `parent`
  /// too (a stage's bytes are also its rank's), unless that is kOutside. Throws InvalidArgument
  /// where all are taken.
  static int take_slot(int parent = kOutside);

  /// The slot may be taken again, once what is charged to it has been freed.
  static void give_back_slot(int slot);

  static MemoryStats stats(int slot);

  /// The peak becomes what is live now.
  static void reset_peak(int slot);

  /// Moves the charge of the tensor's whole storage to `slot`, as when it is handed to another
  /// rank. False, and nothing done, where the storage is not metered (allocated before install(),
  /// from_blob, no storage at all).
  static bool recharge(const torch::Tensor& tensor, int slot);
};

/// LibTorch's allocator takes no more than so many bytes of a GPU from now on, cached ones
/// included, and frees what it has cached: asking for more is an OutOfMemory. Throws
/// InvalidArgument for other devices, and in a build without CUDA.
void limit_device_memory(torch::Device device, std::int64_t bytes);

/// A slot of its own while it lives.
class MemorySlot {
 public:
  explicit MemorySlot(int parent = MemoryMeter::kOutside)
      : number_(MemoryMeter::take_slot(parent)) {}
  ~MemorySlot() { MemoryMeter::give_back_slot(number_); }
  MemorySlot(const MemorySlot&) = delete;
  MemorySlot& operator=(const MemorySlot&) = delete;

  int number() const { return number_; }

 private:
  int number_;
};

/// CPU memory that this thread allocates is charged to `slot` until the scope ends. Scopes nest;
/// a scope ends on the thread that began it.
class MemoryScope {
 public:
  explicit MemoryScope(int slot);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  int outer_;
};

}  // namespace pipewright
