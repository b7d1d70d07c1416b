#include "pipewright/input/lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

constexpr std::int64_t kLinesAPlace = 16;
constexpr std::int64_t kScanBytes = std::int64_t{1} << 20;
constexpr std::int64_t kLineBytes = 4096;  // most reads of a line end with the first of them

std::string_view without_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// Hands out a file's lines one after the other, from any place on.
class LineReader {
 public:
  LineReader(const DataFile& file, std::int64_t place, std::int64_t read_bytes)
      : file_(file), next_read_(place), read_bytes_(read_bytes) {}

  /// Where the line that next() gives begins.
  std::int64_t place() const { return next_read_ - static_cast<std::int64_t>(text_.size() - at_); }

  /// The next line without its end, until the next call; false at the end of the file.
  bool next(std::string_view* line) {
    std::size_t end = text_.find('\n', at_);
    while (end == std::string::npos && read_more()) end = text_.find('\n', searched_);
    if (end == std::string::npos) end = text_.size();
    if (at_ == text_.size()) return false;
    *line = without_return(std::string_view(text_).substr(at_, end - at_));
    at_ = std::min(end + 1, text_.size());
    return true;
  }

 private:
  bool read_more() {
    const std::string more = file_.read_some(next_read_, read_bytes_);
    if (static_cast<std::int64_t>(text_.size() - at_) > kMostLineBytes) {
      refuse_data(
          file_.path(), place(),
          fmt::format("a line of more than {} bytes; this is no file of lines", kMostLineBytes));
    }
    text_.erase(0, at_);
    at_ = 0;
    searched_ = text_.size();
    text_ += more;
    next_read_ += static_cast<std::int64_t>(more.size());
    return !more.empty();
  }

  const DataFile& file_;
  std::int64_t next_read_;
  std::int64_t read_bytes_;
  std::string text_;
  std::size_t at_ = 0;        // the next line's first byte in text_
  std::size_t searched_ = 0;  // no line ends before
};

}  // namespace

LineFile::LineFile(const std::string& path, const LineVisitor& visit) : file_(path) {
  LineReader reader(file_, 0, kScanBytes);
  std::string_view line;
  for (std::int64_t place = 0; reader.next(&line); place = reader.place(), ++size_) {
    if (size_ % kLinesAPlace == 0) places_.push_back(place);
    if (visit) visit(size_, line);
  }
}

std::string LineFile::line(std::int64_t number) const {
  internal_check(number >= 0 && number < size_, "a line that the file does not have");
  const std::int64_t place = places_[static_cast<std::size_t>(number / kLinesAPlace)];
  LineReader reader(file_, place, kLineBytes);
  std::string_view line;
  for (std::int64_t i = 0; i <= number % kLinesAPlace; ++i) {
    if (!reader.next(&line)) {
      refuse_data(path(), reader.place(),
                  fmt::format("the file has changed: line {} was here", number + 1));
    }
  }
  return std::string(line);
}

}  // namespace pipewright
