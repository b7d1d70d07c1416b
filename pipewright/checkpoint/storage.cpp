#include "pipewright/checkpoint/storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace pipewright {
namespace {

namespace fs = std::filesystem;

std::string reason(int error) {
  // strerror's words for this one ask for a look at the manual.
  if (error == ELOOP) return "it is a link";
  return std::error_code(error, std::generic_category()).message();
}

[[noreturn]] void refuse_input(const std::string& path, const std::string& why) {
  throw InvalidArgument("checkpoint", fmt::format("cannot read '{}': {}", path, why));
}

[[noreturn]] void fail_storage(std::string_view action, const std::string& path, int error) {
  throw StorageError("checkpoint", fmt::format("cannot {} '{}': {}; check its folder and the space "
                                               "left there",
                                               action, path, reason(error)));
}

/// Calls again while a signal interrupts.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

InputFile::InputFile(std::string path, Links links) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe that nobody writes to would wait forever.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  fd_ = uninterrupted([&] { return ::open(path_.c_str(), flags); });
  if (fd_ < 0) refuse_input(path_, reason(errno));
  struct stat status {};
  const bool known = ::fstat(fd_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    const std::string why = known ? "it is no regular file" : reason(errno);
    ::close(fd_);
    refuse_input(path_, why);
  }
  size_ = status.st_size;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void InputFile::read(std::int64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const auto got = uninterrupted([&] { return ::pread(fd_, into.data(), into.size(), offset); });
    if (got < 0) refuse_input(path_, reason(errno));
    if (got == 0) refuse_input(path_, fmt::format("it ends at byte {}", offset));
    into = into.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), fd_(uninterrupted([&] {
        return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      })) {
  if (fd_ < 0) fail(errno);
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(path_.c_str());
}

void OutputFile::fail(int error) const { fail_storage("write", path_, error); }

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto taken = uninterrupted([&] { return ::write(fd_, bytes.data(), bytes.size()); });
    if (taken < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(taken));
  }
}

void OutputFile::finish() {
  if (uninterrupted([&] { return ::fsync(fd_); }) != 0) fail(errno);
  // Some file systems say only now that the bytes did not fit. The descriptor is gone either way.
  if (::close(std::exchange(fd_, -1)) != 0) {
    const int error = errno;
    ::unlink(path_.c_str());
    fail(error);
  }
}

std::string read_text(const std::string& path, std::int64_t most_bytes, Links links) {
  const InputFile file(path, links);
  if (file.size() > most_bytes) {
    refuse_input(path, fmt::format("its {} bytes are more than {}", file.size(), most_bytes));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.finish();
}

void sync_folder(const std::string& path) {
  const int fd =
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) fail_storage("open the folder", path, errno);
  const bool synced = uninterrupted([&] { return ::fsync(fd); }) == 0;
  const int error = errno;
  ::close(fd);
  // Some file systems keep names safe by themselves and refuse to be asked.
  if (!synced && error != EINVAL) fail_storage("sync the folder", path, error);
}

void make_folder(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return;
  const std::string parent = fs::path(path).parent_path().string();
  if (!parent.empty() && parent != path) make_folder(parent);
  if (::mkdir(path.c_str(), 0777) != 0) {
    // Another process may have been faster; a file of that name is in the way.
    if (errno == EEXIST && fs::is_directory(path, ignored)) return;
    fail_storage("make the folder", path, errno);
  }
  sync_folder(parent.empty() ? "." : parent);
}

void rename_folder(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_storage("rename to", to, errno);
}

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_storage("remove", path, error.value());
}

bool is_there(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

}  // namespace pipewright
