#include "pipewright/input/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, std::string_view why) {
  throw InvalidArgument("data", fmt::format("cannot read '{}': {}", path, why));
}

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

/// Calls again while a signal interrupts.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<std::string> files_below(const std::string& folder, std::string_view suffix) {
  std::vector<std::string> files;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink);
  for (; entry != fs::end(entry); ++entry) {
    if (is_hidden(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
      continue;
    }
    std::string path = entry->path().string();
    if (entry->is_regular_file() && path.ends_with(suffix)) files.push_back(std::move(path));
  }
  return files;
}

}  // namespace

// O_NONBLOCK: opening a pipe that nobody writes to would wait forever.
DataFile::DataFile(std::string path)
    : path_(std::move(path)),
      fd_(uninterrupted([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); })) {
  if (fd_ < 0) refuse(path_, reason(errno) + "; check the path");
  struct stat status {};
  const bool known = ::fstat(fd_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    const std::string why = known ? "it is no regular file" : reason(errno);
    ::close(fd_);
    refuse(path_, why);
  }
  size_ = status.st_size;
}

DataFile::DataFile(DataFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

DataFile::~DataFile() {
  if (fd_ >= 0) ::close(fd_);
}

void DataFile::read(std::int64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const auto got = uninterrupted([&] { return ::pread(fd_, into.data(), into.size(), offset); });
    if (got < 0) refuse_data(path_, offset, reason(errno));
    if (got == 0)
      refuse_data(path_, offset, "the file ends here; it was longer when it was opened");
    into = into.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

std::string DataFile::read_some(std::int64_t offset, std::int64_t most) const {
  const std::int64_t there = std::max<std::int64_t>(size_ - offset, 0);
  std::string bytes(static_cast<std::size_t>(std::min(there, most)), '\0');
  read(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

void refuse_data(const std::string& path, std::int64_t offset, std::string_view why) {
  throw InvalidArgument("data", fmt::format("'{}' byte {}: {}", path, offset, why));
}

std::vector<std::string> data_files(const std::string& path, std::string_view suffix) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  std::vector<std::string> files;
  try {
    files = files_below(path, suffix);
  } catch (const fs::filesystem_error& error) {
    refuse(path, error.code().message());
  }
  if (files.empty()) {
    throw InvalidArgument("data", fmt::format("the folder '{}' has no file{}; check the path", path,
                                              suffix.empty() ? "" : fmt::format(" *{}", suffix)));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace pipewright
