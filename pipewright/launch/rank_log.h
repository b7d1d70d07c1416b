#pragma once

#include <array>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/launch/sink.h"
#include "pipewright/launch/unique_fd.h"

namespace pipewright::launch {

inline constexpr std::size_t kTailLines = 20;

/// The log file of one rank in one attempt: what it writes to both of its streams, line by line, so
/// that no line is cut by one of the other stream. Its last lines are kept at hand.
class RankLog {
 public:
  /// Adds to the file where it is there already, below the line `mark`, or one that says that a new
  /// run begins. Throws InvalidArgument where it cannot be opened.
  RankLog(std::string path, std::string_view mark);

  void add(Stream stream, std::string_view bytes);

  /// Writes what was left without a newline.
  void finish();

  const std::string& path() const { return path_; }
  /// The last lines, at most kTailLines, long ones cut.
  std::vector<std::string> tail() const;
  /// Why the file could not be written (a full disk); empty where it could. What came after that is
  /// in the tail alone.
  const std::string& trouble() const { return trouble_; }

 private:
  void add_line(std::string_view line);
  void write_out(std::string_view text);

  std::string path_;
  UniqueFd file_;
  std::string trouble_;
  std::array<std::string, 2> unfinished_;  // by stream
  std::deque<std::string> tail_;
};

/// Makes the folder for the logs and returns its path: `wanted`, or where that is empty a new one,
/// pipewright-logs/<date>-<time>. Throws InvalidArgument where it cannot be made.
std::string make_log_folder(const std::string& wanted);

}  // namespace pipewright::launch
