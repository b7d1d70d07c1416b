#include "pipewright/run/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <utility>

#include "pipewright/base/file.h"

namespace pipewright {
namespace {

std::string words_of(int error) {
  return std::error_code(error, std::generic_category()).message();
}

[[noreturn]] void fail(std::string_view action, const std::string& path, int error) {
  const std::string_view help =
      error == EPIPE ? "its reader is gone" : "check its folder and the space left there";
  throw StorageError("run",
                     fmt::format("cannot {} '{}': {}; {}", action, path, words_of(error), help));
}

/// Calls again while a signal interrupts.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// SIGPIPE of this thread waits while it lives, and one that came is taken away.
class NoBrokenPipeSignal {
 public:
  NoBrokenPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending{};
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoBrokenPipeSignal(const NoBrokenPipeSignal&) = delete;
  NoBrokenPipeSignal(NoBrokenPipeSignal&&) = delete;
  NoBrokenPipeSignal& operator=(const NoBrokenPipeSignal&) = delete;
  NoBrokenPipeSignal& operator=(NoBrokenPipeSignal&&) = delete;
  ~NoBrokenPipeSignal() {
    const timespec at_once{};
    if (!was_pending_) uninterrupted([&] { return sigtimedwait(&pipe_, nullptr, &at_once); });
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

/// 0, or the error.
int try_write(int fd, std::string_view bytes) {
  const NoBrokenPipeSignal guard;
  while (!bytes.empty()) {
    const auto taken = uninterrupted([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (taken < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(taken));
  }
  return 0;
}

/// A file with that text, on the disk when it returns: 0, or the error.
int write_synced(const std::string& path, std::string_view text) {
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const int fd = uninterrupted([&] { return ::open(path.c_str(), flags, 0666); });
  if (fd < 0) return errno;
  int error = try_write(fd, text);
  if (error == 0 && uninterrupted([&] { return ::fsync(fd); }) != 0) error = errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  return error;
}

int open_for_lock(const std::string& path, int flags) {
  return uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
}

}  // namespace

void write_all(int fd, std::string_view bytes, const std::string& name) {
  if (const int error = try_write(fd, bytes); error != 0) fail("write to", name, error);
}

AppendFile::AppendFile(std::string path)
    : path_(std::move(path)), fd_(uninterrupted([&] {
        return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
      })) {
  if (fd_ < 0) fail("write", path_, errno);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

void AppendFile::write(std::string_view record) {
  struct stat before {};
  const bool regular = ::fstat(fd_, &before) == 0 && S_ISREG(before.st_mode);
  const int error = try_write(fd_, record);
  if (error == 0) return;
  // Half a record would spoil what stands before it for its readers.
  if (regular) uninterrupted([&] { return ::ftruncate(fd_, before.st_size); });
  fail("write", path_, error);
}

void replace_file(const std::string& path, std::string_view text) {
  const std::string beside = path + ".writing";
  int error = write_synced(beside, text);
  if (error == 0 && ::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(beside.c_str());
    fail("write", path, error);
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  sync_folder(folder.empty() ? "." : folder);
}

std::string read_run_file(const std::string& path, std::int64_t most_bytes) {
  struct stat status {};
  const bool there = ::stat(path.c_str(), &status) == 0;
  if (there && !S_ISREG(status.st_mode))
    throw InvalidArgument("run", fmt::format("cannot read '{}': it is no regular file", path));
  if (there && status.st_size > most_bytes)
    throw InvalidArgument("run", fmt::format("cannot read '{}': its {} bytes are more than {}",
                                             path, status.st_size, most_bytes));
  return read_file(path, "run");
}

FileLock::FileLock(const std::string& path, const std::string& refusal)
    : fd_(open_for_lock(path, O_RDWR | O_CREAT)) {
  if (fd_ < 0) fail("write", path, errno);
  if (uninterrupted([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) == 0) return;
  const int error = errno;
  ::close(std::exchange(fd_, -1));
  if (error == EWOULDBLOCK) throw InvalidArgument("run", refusal);
  fail("lock", path, error);
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

bool FileLock::is_held(const std::string& path) {
  const int fd = open_for_lock(path, O_RDONLY);
  if (fd < 0) return false;
  const bool free = uninterrupted([&] { return ::flock(fd, LOCK_SH | LOCK_NB); }) == 0;
  ::close(fd);
  return !free;
}

}  // namespace pipewright
