#include "pipewright/transport/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <utility>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

constexpr const char* kName = "pipewright-messages";

/// Null where it cannot be.
char* map(int file, std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return data == MAP_FAILED ? nullptr : static_cast<char*>(data);
}

[[noreturn]] void refuse(std::size_t bytes, int error) {
  throw TransportError(
      "transport", fmt::format("cannot share {} bytes with the other processes of this machine: {}",
                               bytes, std::strerror(error)));
}

std::string link_target(const char* path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error).string();
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes)
    : file_(::memfd_create(kName, MFD_CLOEXEC)), bytes_(bytes) {
  if (file_ < 0) refuse(bytes, errno);
  if (::ftruncate(file_, static_cast<off_t>(bytes)) == 0) data_ = map(file_, bytes);
  if (data_ != nullptr) return;
  const int error = errno;
  ::close(file_);
  refuse(bytes, error);
}

std::optional<SharedMemory> SharedMemory::of(std::int64_t process, int file, std::size_t bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", process, file);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return std::nullopt;
  // A number that was given up may stand for another file by now.
  const std::string opened = link_target(fmt::format("/proc/self/fd/{}", own).c_str());
  struct stat status {};
  const bool ours = opened.find(kName) != std::string::npos && ::fstat(own, &status) == 0 &&
                    static_cast<std::size_t>(status.st_size) == bytes;
  char* data = ours ? map(own, bytes) : nullptr;
  if (data != nullptr) return SharedMemory(own, data, bytes);
  ::close(own);
  return std::nullopt;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_) {}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  if (file_ >= 0) ::close(file_);
}

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) return "";
  return fmt::format("{} {} {} {}", boot, ::geteuid(), link_target("/proc/self/ns/pid"),
                     link_target("/proc/self/ns/net"));
}

void sleep_on(std::atomic<std::uint32_t>* word, std::uint32_t seen,
              std::chrono::milliseconds most) {
  timespec time{};
  time.tv_sec = most.count() / 1000;
  time.tv_nsec = most.count() % 1000 * 1'000'000;
  ::syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace pipewright
