#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <system_error>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/input/npy.h"

namespace pipewright {
namespace {

/// Room for any number of tokens, so that the head can be written again when they are known.
constexpr std::size_t kHeadBytes = 128;

std::string head_for(std::int64_t numbers) {
  ArrayLayout layout;
  layout.dtype = DType::kI32;
  layout.big_endian = std::endian::native == std::endian::big;
  layout.shape = {numbers};
  return npy_head(layout, kHeadBytes);
}

}  // namespace

NpyWriter::NpyWriter(std::string path)
    : path_(std::move(path)),
      unfinished_(path_ + ".writing"),
      fd_(::open(unfinished_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail(errno);
}

NpyWriter::~NpyWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(unfinished_.c_str());
}

void NpyWriter::fail(int error) const {
  throw InvalidArgument(
      "data", fmt::format("cannot write '{}': {}; check its folder and the space left there", path_,
                          std::error_code(error, std::generic_category()).message()));
}

void NpyWriter::write(std::string_view bytes, std::int64_t offset) {
  while (!bytes.empty()) {
    const auto taken = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(taken));
    offset += taken;
  }
}

void NpyWriter::append(std::span<const std::int32_t> numbers) {
  const auto start = static_cast<std::int64_t>(kHeadBytes + static_cast<std::size_t>(numbers_) * 4);
  write({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()}, start);
  numbers_ += static_cast<std::int64_t>(numbers.size());
}

void NpyWriter::finish() {
  const std::string head = head_for(numbers_);
  internal_check(head.size() == kHeadBytes, "a longer head than was left room for");
  write(head, 0);
  if (::fsync(fd_) != 0) fail(errno);
  if (::close(std::exchange(fd_, -1)) != 0 || ::rename(unfinished_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(unfinished_.c_str());
    fail(error);
  }
}

}  // namespace pipewright
