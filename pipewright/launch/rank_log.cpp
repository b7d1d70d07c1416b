#include "pipewright/launch/rank_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "pipewright/base/error.h"

namespace pipewright::launch {
namespace {

/// A line without an end (a progress bar, bytes that are no text) is written in pieces of this.
constexpr std::size_t kMostUnfinished = 65536;
constexpr std::size_t kMostTailBytes = 2000;  // of a line

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm result{};
  localtime_r(&now, &result);
  return result;
}

}  // namespace

RankLog::RankLog(std::string path, std::string_view mark)
    : path_(std::move(path)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666)) {
  if (!file_.open()) {
    throw InvalidArgument("--log-dir", fmt::format("cannot write '{}': {}; check the folder", path_,
                                                   std::strerror(errno)));
  }
  struct stat status {};
  const bool used = fstat(file_.get(), &status) == 0 && status.st_size > 0;
  if (mark.empty() && used) mark = "new run";
  if (!mark.empty())
    write_out(fmt::format("--- {}, {:%Y-%m-%d %H:%M:%S} ---\n", mark, local_time()));
}

void RankLog::add(Stream stream, std::string_view bytes) {
  std::string& text = unfinished_[static_cast<std::size_t>(stream)];
  text.append(bytes);
  const std::size_t last = text.rfind('\n');
  const std::size_t end = last == std::string::npos ? 0 : last + 1;
  for (std::size_t start = 0; start < end;) {
    const std::size_t newline = text.find('\n', start);
    add_line(std::string_view(text).substr(start, newline - start));
    start = newline + 1;
  }
  if (end > 0) write_out(std::string_view(text).substr(0, end));
  text.erase(0, end);
  if (text.size() < kMostUnfinished) return;
  add_line(text);
  write_out(text);
  text.clear();
}

void RankLog::finish() {
  for (std::string& text : unfinished_) {
    if (text.empty()) continue;
    add_line(text);
    write_out(text + '\n');
    text.clear();
  }
}

std::vector<std::string> RankLog::tail() const { return {tail_.begin(), tail_.end()}; }

void RankLog::add_line(std::string_view line) {
  tail_.emplace_back(line.substr(0, kMostTailBytes));
  if (tail_.size() > kTailLines) tail_.pop_front();
}

void RankLog::write_out(std::string_view text) {
  while (!text.empty() && trouble_.empty()) {
    const ssize_t size = write(file_.get(), text.data(), text.size());
    if (size > 0) text.remove_prefix(static_cast<std::size_t>(size));
    if (size < 0 && errno != EINTR) trouble_ = std::strerror(errno);
  }
}

std::string make_log_folder(const std::string& wanted) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path parent = wanted.empty() ? fs::path("pipewright-logs") : fs::path(wanted);
  fs::create_directories(parent, error);
  if (!error && !wanted.empty() && fs::is_directory(parent)) return wanted;
  const std::string stamp = fmt::format("{:%Y%m%d-%H%M%S}", local_time());
  for (int i = 1; !error && wanted.empty(); ++i) {  // another run may begin in the same second
    const fs::path folder = parent / (i == 1 ? stamp : fmt::format("{}-{}", stamp, i));
    if (fs::create_directory(folder, error)) return folder;
  }
  const std::string why = error ? error.message() : "it is no folder";
  throw InvalidArgument(
      "--log-dir",
      fmt::format("cannot make the folder '{}': {}; name another one", parent.string(), why));
}

}  // namespace pipewright::launch
