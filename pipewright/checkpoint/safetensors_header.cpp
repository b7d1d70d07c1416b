// The header's JSON: read by events rather than into a tree, so that a hostile one of 100 MB makes
// no tree of gigabytes and every member is checked where it stands, one that stands twice included.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/safetensors.h"
#include "pipewright/checkpoint/text.h"

namespace pipewright {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& path, std::string_view why) {
  throw InvalidArgument("checkpoint",
                        fmt::format("'{}' is no whole safetensors file: {}", path, why));
}

class HeaderReader : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool /*value*/) override { unexpected("a boolean"); }
  bool number_float(double /*value*/, const std::string& text) override {
    unexpected(text.substr(0, 40));
  }
  bool binary(json::binary_t& /*value*/) override { unexpected("bytes"); }

  bool number_integer(std::int64_t value) override { unexpected(fmt::format("{}", value)); }

  bool number_unsigned(std::uint64_t value) override {
    const bool fits = value <= INT64_MAX;
    if (place_ == Place::kShape && fits) {
      if (record_.shape.size() == kMostDimensions) {
        refuse_tensor(fmt::format("has more than {} dimensions", kMostDimensions));
      }
      record_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::kOffsets && fits && offsets_.size() < 2) {
      offsets_.push_back(static_cast<std::int64_t>(value));
    } else {
      unexpected(fmt::format("{}", value));
    }
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[member_] = std::move(value);
    } else if (place_ == Place::kTensor && member_ == "dtype") {
      set_dtype(value);
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && name_ == "__metadata__") {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTop) {
      place_ = Place::kTensor;
      record_ = TensorRecord();
      record_.name = name_;
      offsets_.clear();
    } else {
      unexpected("an object");
    }
    members_.clear();
    return true;
  }

  bool key(std::string& name) override {
    if (place_ == Place::kTop) {
      if (!names_.insert(name).second) {
        refuse(path_, fmt::format("{} stands twice in the header", shown(name)));
      }
      name_ = std::move(name);
      return true;
    }
    if (!members_.insert(name).second) {
      refuse(path_, fmt::format("{} of {} stands twice", shown(name), shown(name_)));
    }
    const bool known = name == "dtype" || name == "shape" || name == "data_offsets";
    if (place_ == Place::kTensor && !known) {
      refuse_tensor(
          fmt::format("has a member {}; there are dtype, shape, data_offsets", shown(name)));
    }
    member_ = std::move(name);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      for (const char* member : {"dtype", "shape", "data_offsets"}) {
        if (!members_.contains(member)) refuse_tensor(fmt::format("has no {}", member));
      }
      header_.tensors.push_back(std::move(record_));
    }
    place_ = place_ == Place::kTop ? Place::kOutside : Place::kTop;
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (place_ == Place::kTensor && member_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && member_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets) {
      if (offsets_.size() != 2) {
        refuse_tensor(fmt::format("has data_offsets of {} numbers, not 2", offsets_.size()));
      }
      record_.begin = offsets_[0];
      record_.end = offsets_[1];
    }
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t byte, const std::string& /*token*/,
                   const json::exception& /*error*/) override {
    refuse(path_, fmt::format("no JSON at byte {} of the header", byte));
  }

 private:
  enum class Place { kOutside, kTop, kMetadata, kTensor, kShape, kOffsets };

  [[noreturn]] void refuse_tensor(std::string_view why) const {
    refuse(path_, fmt::format("tensor {} {}", shown(name_), why));
  }

  [[noreturn]] void unexpected(std::string_view what) const {
    switch (place_) {
      case Place::kOutside: refuse(path_, fmt::format("the header is {}, not an object", what));
      case Place::kTop: refuse(path_, fmt::format("{} is {}, not an object", shown(name_), what));
      case Place::kMetadata:
        refuse(path_, fmt::format("{} of __metadata__ is {}, not a string", shown(member_), what));
      case Place::kTensor:
        refuse_tensor(fmt::format("has {} for its {}, not {}", what, member_,
                                  member_ == "dtype" ? "a string" : "an array"));
      case Place::kShape:
        refuse_tensor(
            fmt::format("has {} in its shape, not a whole number from 0 to 2^63 - 1", what));
      case Place::kOffsets: break;
    }
    refuse_tensor(
        fmt::format("has {} in its data_offsets, not two whole numbers from 0 to 2^63 - 1", what));
  }

  void set_dtype(const std::string& name) {
    const auto dtype = parse_dtype(name);
    if (!dtype) {
      std::vector<std::string_view> known;
      for (const DType each : kAllDTypes) known.push_back(dtype_name(each));
      refuse_tensor(
          fmt::format("is of dtype {}; known are {}", shown(name), fmt::join(known, ", ")));
    }
    record_.dtype = *dtype;
  }

  const std::string& path_;
  Place place_ = Place::kOutside;
  SafetensorsHeader header_;
  std::set<std::string> names_;    // of the header
  std::set<std::string> members_;  // of the object that is open within it
  std::string name_;
  std::string member_;
  TensorRecord record_;
  std::vector<std::int64_t> offsets_;
};

void check_size(const TensorRecord& tensor, const std::string& path) {
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes) {
    refuse(path, fmt::format("tensor {} of shape [{}] is larger than anything", shown(tensor.name),
                             fmt::join(tensor.shape, ", ")));
  }
  if (tensor.begin > tensor.end || tensor.bytes() != *bytes) {
    refuse(path, fmt::format("tensor {} takes {} bytes by dtype {} and shape [{}], but its "
                             "data_offsets are [{}, {}]",
                             shown(tensor.name), *bytes, dtype_name(tensor.dtype),
                             fmt::join(tensor.shape, ", "), tensor.begin, tensor.end));
  }
}

/// Every byte of the data belongs to one tensor. `tensors` are in the order of their bytes.
void check_cover(const std::vector<TensorRecord>& tensors, std::int64_t data_bytes,
                 const std::string& path) {
  std::int64_t covered = 0;
  for (const TensorRecord& tensor : tensors) {
    if (tensor.begin != covered) {
      refuse(path, fmt::format("tensor {} begins at byte {} of the data, and the tensors before it "
                               "end at {}: bytes are {}",
                               shown(tensor.name), tensor.begin, covered,
                               tensor.begin > covered ? "unused" : "used twice"));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    refuse(path,
           fmt::format("its tensors take {} bytes, but {} follow the header", covered, data_bytes));
  }
}

std::string quoted(const std::string& text) { return json(text).dump(); }

std::string header_json(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto add = [&](const std::string& member) {
    if (text.size() > 1) text += ',';
    text += member;
  };
  if (!header.metadata.empty()) {
    add(fmt::format(R"("__metadata__":{})", json(header.metadata).dump()));
  }
  for (const TensorRecord& tensor : header.tensors) {
    add(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                    quoted(tensor.name), dtype_name(tensor.dtype), fmt::join(tensor.shape, ","),
                    tensor.begin, tensor.end));
  }
  return text + "}";
}

}  // namespace

std::optional<std::int64_t> tensor_bytes(DType dtype, std::span<const std::int64_t> shape) {
  std::int64_t bytes = dtype_bytes(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string safetensors_head(const SafetensorsHeader& header, const std::string& path) {
  std::string text;
  try {
    text = header_json(header);
  } catch (const json::exception&) {
    throw InvalidArgument("checkpoint",
                          fmt::format("cannot write '{}': the name of a tensor or its "
                                      "metadata is no UTF-8; rename it",
                                      path));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string head;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    head += static_cast<char>((static_cast<std::uint64_t>(text.size()) >> shift) & 0xffU);
  }
  return head + text;
}

std::int64_t safetensors_json_bytes(std::span<const std::byte, 8> first, std::int64_t file_bytes,
                                    const std::string& path) {
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;)
    length = length << 8U | std::to_integer<std::uint64_t>(first[i]);
  if (length > static_cast<std::uint64_t>(kMostHeaderBytes)) {
    refuse(path, fmt::format("a header of {} bytes is more than {}", length, kMostHeaderBytes));
  }
  const auto bytes = static_cast<std::int64_t>(length);
  if (bytes > file_bytes - 8) {
    refuse(path,
           fmt::format("a header of {} bytes does not fit into a file of {}", bytes, file_bytes));
  }
  return bytes;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t data_bytes,
                                           const std::string& path) {
  if (!text.starts_with('{')) refuse(path, "the header does not begin with '{'");
  // The parser takes such a byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) refuse(path, "a byte of 0 is in the header");
  HeaderReader reader(path);
  json::sax_parse(text.begin(), text.end(), &reader);
  SafetensorsHeader header = reader.take();
  for (const TensorRecord& tensor : header.tensors) check_size(tensor, path);
  // Tensors without bytes lie between others, before the one that begins there.
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorRecord& a, const TensorRecord& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  check_cover(header.tensors, data_bytes, path);
  return header;
}

}  // namespace pipewright
