#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pipewright/checkpoint/storage.h"

namespace pipewright {

// The files of a run. Where the disk or the reader of a pipe refuses, a StorageError says which
// file and why; what is no regular file is refused when it is read.

/// Writes all of `bytes`. A pipe whose reader is gone is an error like any other: the signal that
/// would end the process is held back. `name` is for the message.
void write_all(int fd, std::string_view bytes, const std::string& name);

/// A file that grows by whole records. Each is with the system when write() returns, so that a
/// killed process loses nothing.
class AppendFile {
 public:
  /// Made where it is absent.
  explicit AppendFile(std::string path);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  AppendFile& operator=(AppendFile&&) = delete;
  ~AppendFile();

  const std::string& path() const { return path_; }

  /// All of it, or StorageError; then the file ends where it ended before.
  void write(std::string_view record);

 private:
  std::string path_;
  int fd_ = -1;
};

/// Replaces a file as a whole: readers see the old text or the new one, whenever the writer dies.
void replace_file(const std::string& path, std::string_view text);

/// Throws InvalidArgument where it cannot be read, is no regular file or larger than `most_bytes`.
std::string read_run_file(const std::string& path, std::int64_t most_bytes = std::int64_t{1} << 32);

/// A file that one process holds at a time; let go when the process ends, however it does.
class FileLock {
 public:
  /// Throws InvalidArgument with `refusal` where another process, or another lock of this one,
  /// holds it.
  FileLock(const std::string& path, const std::string& refusal);
  FileLock(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

  /// Whether somebody holds it now.
  static bool is_held(const std::string& path);

 private:
  int fd_ = -1;
};

}  // namespace pipewright
