#include "pipewright/run/events.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>

#include "pipewright/checkpoint/layout.h"
#include "pipewright/run/facts.h"

namespace pipewright {
namespace {

// Protobuf's wire format: a field is its number and wire type, then its value.
constexpr std::uint32_t kVarint = 0;
constexpr std::uint32_t kFixed64 = 1;
constexpr std::uint32_t kLengthDelimited = 2;
constexpr std::uint32_t kFixed32 = 5;

// Fields of the messages, by their names in TensorFlow's event.proto, summary.proto and
// tensor.proto.
constexpr std::uint32_t kEventWallTime = 1;
constexpr std::uint32_t kEventStep = 2;
constexpr std::uint32_t kEventFileVersion = 3;
constexpr std::uint32_t kEventSummary = 5;
constexpr std::uint32_t kEventSessionLog = 7;
constexpr std::uint32_t kSessionLogStatus = 1;
constexpr std::uint64_t kSessionStart = 1;
constexpr std::uint32_t kSummaryValue = 1;
constexpr std::uint32_t kValueTag = 1;
constexpr std::uint32_t kValueSimple = 2;
constexpr std::uint32_t kValueTensor = 8;
constexpr std::uint32_t kValueMetadata = 9;
constexpr std::uint32_t kMetadataPluginData = 1;
constexpr std::uint32_t kPluginName = 1;
constexpr std::uint32_t kTensorType = 1;
constexpr std::uint64_t kTypeString = 7;
constexpr std::uint32_t kTensorShape = 2;
constexpr std::uint32_t kTensorStrings = 8;
constexpr std::uint32_t kShapeDimension = 2;
constexpr std::uint32_t kDimensionSize = 1;

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7U) out += static_cast<char>(value | 0x80U);
  return out += static_cast<char>(value);
}

template <typename Integer>
std::string little_endian(Integer value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string key(std::uint32_t field, std::uint32_t type) { return varint(field << 3U | type); }

std::string number(std::uint32_t field, std::uint64_t value) {
  return key(field, kVarint) + varint(value);
}

std::string bytes(std::uint32_t field, std::string_view value) {
  return key(field, kLengthDelimited) + varint(value.size()) + std::string(value);
}

std::string float64(std::uint32_t field, double value) {
  return key(field, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}

std::string float32(std::uint32_t field, float value) {
  return key(field, kFixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}

/// Too large a double for a float is an infinity, not undefined.
float to_float(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  if (std::abs(value) > kMost)
    return std::copysign(std::numeric_limits<float>::infinity(),
                         static_cast<float>(value > 0 ? 1 : -1));
  return static_cast<float>(value);
}

/// Event files mask their checksums, so that one of bytes that hold checksums is not all zeros.
std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8U; }

std::string record(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked(crc32c(length))) + std::string(data) +
         little_endian(masked(crc32c(data)));
}

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0);
    table[byte] = crc;
  }
  return table;
}

/// A name that no file has: of sessions in one second, and of processes on several hosts.
std::string new_file(const std::string& folder, double unix_time) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw StorageError("run", fmt::format("cannot make the folder '{}': {}; choose another place",
                                          folder, error.message()));
  std::string host = facts_of_this_machine().host;
  if (!is_plain_file_name(host)) host = "host";
  const std::string name = fmt::format("events.out.tfevents.{:010}.{}.{}",
                                       static_cast<std::int64_t>(unix_time), host, ::getpid());
  std::string path = in_folder(folder, name);
  for (int i = 2; is_there(path); ++i) path = in_folder(folder, fmt::format("{}.{}", name, i));
  return path;
}

}  // namespace

std::uint32_t crc32c(std::string_view text) {
  static constexpr auto kTable = crc_table();
  std::uint32_t crc = 0xffffffffU;
  for (const char c : text) crc = crc >> 8U ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xffU];
  return crc ^ 0xffffffffU;
}

EventWriter::EventWriter(const std::string& folder, std::int64_t first_step, double unix_time)
    : file_(new_file(folder, unix_time)) {
  event(bytes(kEventFileVersion, "brain.Event:2"), 0, unix_time);
  if (first_step > 0) {
    const std::string session = number(kSessionLogStatus, kSessionStart);
    event(bytes(kEventSessionLog, session), first_step + 1, unix_time);
  }
}

void EventWriter::event(std::string_view fields, std::int64_t step, double unix_time) {
  std::string message = float64(kEventWallTime, unix_time);
  if (step != 0) message += number(kEventStep, static_cast<std::uint64_t>(step));
  message += fields;
  file_.write(record(message));
}

void EventWriter::scalar(std::string_view tag, std::int64_t step, double value, double unix_time) {
  const std::string one = bytes(kValueTag, tag) + float32(kValueSimple, to_float(value));
  event(bytes(kEventSummary, bytes(kSummaryValue, one)), step, unix_time);
}

void EventWriter::text(std::string_view tag, std::int64_t step, std::string_view text,
                       double unix_time) {
  const std::string plugin = bytes(kMetadataPluginData, bytes(kPluginName, "text"));
  const std::string shape = bytes(kShapeDimension, number(kDimensionSize, 1));
  const std::string tensor =
      number(kTensorType, kTypeString) + bytes(kTensorShape, shape) + bytes(kTensorStrings, text);
  const std::string one =
      bytes(kValueTag, tag) + bytes(kValueTensor, tensor) + bytes(kValueMetadata, plugin);
  event(bytes(kEventSummary, bytes(kSummaryValue, one)), step, unix_time);
}

}  // namespace pipewright
