#include "pipewright/input/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/safetensors.h"
#include "pipewright/input/python_literal.h"

namespace pipewright {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kVersionEnd = 8;
constexpr std::size_t kAlignment = 64;

struct TypeCode {
  std::string_view code;  // without the byte order
  DType dtype;
};
constexpr std::array<TypeCode, 12> kCodes = {{{"b1", DType::kBool},
                                              {"i1", DType::kI8},
                                              {"u1", DType::kU8},
                                              {"i2", DType::kI16},
                                              {"u2", DType::kU16},
                                              {"f2", DType::kF16},
                                              {"i4", DType::kI32},
                                              {"u4", DType::kU32},
                                              {"f4", DType::kF32},
                                              {"i8", DType::kI64},
                                              {"u8", DType::kU64},
                                              {"f8", DType::kF64}}};

struct Frame {
  std::size_t start = 0;  // of the dictionary
  std::size_t end = 0;    // of the dictionary: the first byte of the data
};

std::size_t little_endian(std::string_view bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  }
  return value;
}

void check_magic(std::string_view head, const std::string& path) {
  if (head.starts_with("\x1f\x8b")) {
    refuse_data(path, 0, "the file is compressed by gzip; unpack it with gunzip first");
  }
  if (head.starts_with("PK\x03\x04")) {
    refuse_data(path, 0, "this is a .npz archive; unpack it, and name one of its .npy files");
  }
  if (!head.starts_with(kMagic))
    refuse_data(path, 0, "this is no .npy file: it has other first bytes");
}

/// Where the dictionary lies.
Frame read_frame(std::string_view head, std::int64_t file_bytes, const std::string& path) {
  check_magic(head, path);
  if (head.size() < kVersionEnd) refuse_data(path, file_bytes, "the file ends within its header");
  const int major = static_cast<unsigned char>(head[6]);
  const int minor = static_cast<unsigned char>(head[7]);
  if (major < 1 || major > 3 || minor != 0) {
    refuse_data(path, 6,
                fmt::format("version {}.{} of the format; versions 1.0, 2.0 and 3.0 are "
                            "known",
                            major, minor));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  Frame frame;
  frame.start = kVersionEnd + length_bytes;
  if (head.size() < frame.start) refuse_data(path, file_bytes, "the file ends within its header");
  frame.end = frame.start + little_endian(head.substr(kVersionEnd, length_bytes));
  if (frame.end <= head.size()) return frame;
  const bool large = frame.end > static_cast<std::size_t>(kMostNpyHeaderBytes);
  refuse_data(path, static_cast<std::int64_t>(kVersionEnd),
              fmt::format("the header claims to end at byte {}, {}", frame.end,
                          large ? fmt::format("beyond the {} that are allowed", kMostNpyHeaderBytes)
                                : fmt::format("the file at {}", file_bytes)));
}

/// Sets dtype and byte order from a code such as <f4.
void read_type(std::string_view code, ArrayLayout* layout, const PythonReader& reader) {
  const char order = code.empty() ? '\0' : code.front();
  for (const TypeCode& known : kCodes) {
    if (code.empty() || code.substr(1) != known.code) continue;
    const bool one_byte = dtype_bytes(known.dtype) == 1;
    if (order != '<' && order != '>' && !(one_byte && order == '|')) break;
    layout->dtype = known.dtype;
    layout->big_endian = order == '>' && !one_byte;
    return;
  }
  reader.refuse(
      fmt::format("elements of type '{}'; known are booleans, whole numbers and floating "
                  "point of up to 8 bytes, so save the array as one of those",
                  code));
}

void read_member(const std::string& key, PythonReader* reader, ArrayLayout* layout) {
  if (key == "descr") {
    if (reader->peek() == '[') {
      reader->refuse("a structured array; save its fields as arrays of their own");
    }
    read_type(reader->string(), layout, *reader);
  } else if (key == "fortran_order") {
    layout->column_major = reader->boolean();
  } else if (key == "shape") {
    layout->shape = reader->integers();
  } else {
    reader->refuse(fmt::format("'{}' is none of descr, fortran_order and shape", key));
  }
}

ArrayLayout read_dictionary(std::string_view text, std::int64_t start, const std::string& path) {
  PythonReader reader(text, start, path);
  ArrayLayout layout;
  std::vector<std::string> keys;
  reader.expect('{');
  while (!reader.take('}')) {
    const std::string key = reader.string();
    for (const std::string& other : keys) {
      if (other == key) reader.refuse(fmt::format("'{}' for the second time", key));
    }
    keys.push_back(key);
    reader.expect(':');
    read_member(key, &reader, &layout);
    if (!reader.take(',') && reader.peek() != '}') reader.refuse("',' or '}' is missing");
  }
  reader.expect_end();
  if (keys.size() != 3) reader.refuse("descr, fortran_order and shape must all be there");
  return layout;
}

void check_size(const ArrayLayout& layout, std::int64_t file_bytes, const std::string& path) {
  const auto bytes = tensor_bytes(layout.dtype, layout.shape);
  const std::int64_t there = file_bytes - layout.data_start;
  if (!bytes)
    refuse_data(path, layout.data_start, "the array has more elements than can be counted");
  if (layout.shape.size() > kMostDimensions) {
    refuse_data(path, layout.data_start,
                fmt::format("{} dimensions; at most {}", layout.shape.size(), kMostDimensions));
  }
  if (*bytes > there) {
    refuse_data(path, file_bytes,
                fmt::format("the file ends here, with {} of the array's {} bytes; "
                            "it was cut short",
                            there, *bytes));
  }
  if (*bytes < there) {
    refuse_data(path, layout.data_start + *bytes,
                fmt::format("the array ends here; {} bytes follow it", there - *bytes));
  }
}

std::string_view code_of(DType dtype) {
  for (const TypeCode& known : kCodes) {
    if (known.dtype == dtype) return known.code;
  }
  throw InvalidArgument("data", fmt::format(".npy files have no type for {}", dtype_name(dtype)));
}

std::string dictionary(const ArrayLayout& layout) {
  std::string shape;
  for (const std::int64_t size : layout.shape) shape += fmt::format("{}, ", size);
  // As numpy writes it: (), (3,), (3, 4).
  if (!shape.empty()) shape.pop_back();
  if (layout.shape.size() > 1) shape.pop_back();
  const char order = dtype_bytes(layout.dtype) == 1 ? '|' : layout.big_endian ? '>' : '<';
  return fmt::format("{{'descr': '{}{}', 'fortran_order': {}, 'shape': ({}), }}", order,
                     code_of(layout.dtype), layout.column_major ? "True" : "False", shape);
}

}  // namespace

ArrayLayout parse_npy_header(std::string_view head, std::int64_t file_bytes,
                             const std::string& path) {
  const Frame frame = read_frame(head, file_bytes, path);
  ArrayLayout layout = read_dictionary(head.substr(frame.start, frame.end - frame.start),
                                       static_cast<std::int64_t>(frame.start), path);
  layout.data_start = static_cast<std::int64_t>(frame.end);
  check_size(layout, file_bytes, path);
  return layout;
}

std::string npy_head(const ArrayLayout& layout, std::size_t least_bytes) {
  std::string text = dictionary(layout);
  const std::size_t start = kVersionEnd + 2;
  std::size_t bytes = std::max(start + text.size() + 1, least_bytes);
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t length = bytes - start;
  internal_check(length <= std::numeric_limits<std::uint16_t>::max(), "a header too long for 1.0");
  text.resize(length - 1, ' ');
  std::string head(kMagic);
  head += {'\x01', '\0', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return head + text + "\n";
}

}  // namespace pipewright
