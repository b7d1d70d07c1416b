#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/input/file.h"

namespace pipewright {

/// Longer lines are refused: such a file is not one of lines.
inline constexpr std::int64_t kMostLineBytes = std::int64_t{16} << 20;

/// Sees a line, without its end, and its number from 0.
using LineVisitor = std::function<void(std::int64_t number, std::string_view line)>;

/// A file of lines, any of which can be read by itself. Of the file only the places of every 16th
/// line are held: half a byte a line. Lines end with \n or \r\n; the last one may have no end.
/// Several threads may read at once.
class LineFile {
 public:
  /// Goes through the whole file once; `visit` sees every line on the way. Throws InvalidArgument
  /// naming the file and the place.
  explicit LineFile(const std::string& path, const LineVisitor& visit = {});

  const std::string& path() const { return file_.path(); }
  std::int64_t size() const { return size_; }  // lines

  /// Line `number` of 0 to size() - 1, without its end.
  std::string line(std::int64_t number) const;

 private:
  DataFile file_;
  std::vector<std::int64_t> places_;  // of lines 0, 16, 32, ...
  std::int64_t size_ = 0;
};

}  // namespace pipewright
