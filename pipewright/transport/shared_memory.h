#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace pipewright {

/// Memory that processes of one machine share. It has no name: others reach it by this process's
/// number and the file's while it lives, and nothing is left behind, however a process ends.
class SharedMemory {
 public:
  /// New, all zeros. Throws TransportError where the machine has none left.
  explicit SharedMemory(std::size_t bytes);
  /// That of another process, of the size it has there; nothing where it cannot be reached.
  static std::optional<SharedMemory> of(std::int64_t process, int file, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  int file() const { return file_; }

 private:
  SharedMemory(int file, char* data, std::size_t bytes) : file_(file), data_(data), bytes_(bytes) {}

  int file_ = -1;
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The same text for processes that can share memory and reach each other by loopback: of one
/// machine, one user, and the same spaces of processes and of networks. (Of two networks on one
/// machine, what is between them is meant to be used.)
std::string machine_identity();

/// Sleeps until another thread, of whichever process, calls wake_all() on it, the word is no longer
/// `seen`, or the time is over; may wake for nothing.
void sleep_on(std::atomic<std::uint32_t>* word, std::uint32_t seen, std::chrono::milliseconds most);
void wake_all(std::atomic<std::uint32_t>* word);

}  // namespace pipewright
