#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pipewright/base/error.h"

namespace pipewright {

/// The disk refused to take a checkpoint: full, read-only, gone. The message names the file and the
/// reason. What was whole before still is.
class StorageError : public Error {
 public:
  using Error::Error;
};

/// What is done where a file's name is that of a link.
enum class Links : std::uint8_t { kRefuse, kFollow };

/// A regular file being read; everything that is none is refused. Reads at offsets, so several
/// threads may read at once.
class InputFile {
 public:
  /// Throws InvalidArgument saying why it cannot be read.
  explicit InputFile(std::string path, Links links = Links::kRefuse);
  InputFile(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }  // when it was opened

  /// Fills `into` with the bytes from `offset` on; throws InvalidArgument where there are fewer.
  void read(std::int64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

/// A new file being written. Unless finish() is called it is removed again. Throws StorageError.
class OutputFile {
 public:
  /// Refuses a file that is there already.
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile(OutputFile&&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);

  /// Has the bytes on the disk when it returns, and closes the file.
  void finish();

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;
  int fd_ = -1;
};

/// The text of a file of at most `most_bytes`. Throws InvalidArgument.
std::string read_text(const std::string& path, std::int64_t most_bytes,
                      Links links = Links::kRefuse);

/// A new file with that text, on the disk when it returns. Throws StorageError.
void write_text(const std::string& path, std::string_view text);

// Folders. All throw StorageError naming the folder.
void make_folder(const std::string& path);  // with those above it; may be there already
void sync_folder(const std::string& path);  // the names in it, not the files' bytes
void rename_folder(const std::string& from, const std::string& to);
void remove_folder(const std::string& path);  // with all that is in it; may be absent

bool is_there(const std::string& path);  // a link is, wherever it points

}  // namespace pipewright
