#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// A file of data being read. Reads at offsets, so several threads may read at once. It is read,
/// not mapped: a mapped file that is cut short meanwhile would kill the process.
class DataFile {
 public:
  /// Throws InvalidArgument saying why it cannot be read: not there, a folder, a pipe.
  explicit DataFile(std::string path);
  DataFile(DataFile&& other) noexcept;
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  DataFile& operator=(DataFile&&) = delete;
  ~DataFile();

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }  // when it was opened

  /// Fills `into` with the bytes from `offset` on; throws InvalidArgument where there are fewer.
  void read(std::int64_t offset, std::span<std::byte> into) const;

  /// The bytes from `offset` on, at most `most` of them, fewer at the file's end.
  std::string read_some(std::int64_t offset, std::int64_t most) const;

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

/// Throws InvalidArgument: `[data] 'path' byte 17: why`.
[[noreturn]] void refuse_data(const std::string& path, std::int64_t offset, std::string_view why);

/// A file itself, or the files of a folder and the folders in it, sorted by their path, hidden ones
/// (`.name`) left out. `suffix`: those alone whose names end so. Throws InvalidArgument where there
/// is none.
std::vector<std::string> data_files(const std::string& path, std::string_view suffix = "");

}  // namespace pipewright
