#include "pipewright/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "pipewright/base/error.h"
#include "pipewright/base/sha256.h"
#include "pipewright/checkpoint/text.h"

namespace pipewright {
namespace {

/// Small enough that what is hashed is still in the cache when it is written.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

[[noreturn]] void refuse_tensor(const std::string& path, const TensorView& tensor,
                                std::string_view why) {
  throw InvalidArgument(
      "checkpoint", fmt::format("cannot write '{}': tensor {} {}", path, shown(tensor.name), why));
}

void check_tensor(const TensorView& tensor, const std::string& path) {
  if (tensor.name == "__metadata__") refuse_tensor(path, tensor, "has a name the format keeps");
  if (tensor.shape.size() > kMostDimensions) {
    refuse_tensor(path, tensor, fmt::format("has more than {} dimensions", kMostDimensions));
  }
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes || static_cast<std::uint64_t>(*bytes) != tensor.data.size()) {
    refuse_tensor(
        path, tensor,
        fmt::format("of dtype {} and shape [{}] comes with {} bytes", dtype_name(tensor.dtype),
                    fmt::join(tensor.shape, ", "), tensor.data.size()));
  }
}

/// In the order of their bytes.
std::vector<const TensorView*> sorted(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    const std::int64_t a_bytes = dtype_bytes(a->dtype);
    const std::int64_t b_bytes = dtype_bytes(b->dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
  });
  return order;
}

SafetensorsHeader lay_out(const std::vector<const TensorView*>& tensors,
                          const SafetensorsMetadata& metadata, const std::string& path) {
  SafetensorsHeader header;
  header.metadata = metadata;
  std::set<std::string_view> names;
  std::int64_t end = 0;
  for (const TensorView* tensor : tensors) {
    check_tensor(*tensor, path);
    if (!names.insert(tensor->name).second) refuse_tensor(path, *tensor, "stands there twice");
    const std::int64_t begin = end;
    end += static_cast<std::int64_t>(tensor->data.size());
    header.tensors.push_back({tensor->name, tensor->dtype, tensor->shape, begin, end});
  }
  return header;
}

/// A file and the checksum of what went into it.
class HashedFile {
 public:
  explicit HashedFile(const std::string& path) : file_(path) {}

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      sha_.update(piece);
      file_.write(piece);
      bytes = bytes.subspan(piece.size());
    }
  }

  std::string finish() {
    file_.finish();
    return sha_.hex();
  }

 private:
  OutputFile file_;
  Sha256 sha_;
};

}  // namespace

WrittenFile write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                              const SafetensorsMetadata& metadata) {
  const auto order = sorted(tensors);
  const SafetensorsHeader header = lay_out(order, metadata, path);
  const std::string head = safetensors_head(header, path);
  if (static_cast<std::int64_t>(head.size()) - 8 > kMostHeaderBytes) {
    throw InvalidArgument(
        "checkpoint", fmt::format("cannot write '{}': a header of {} bytes is more than {}; put "
                                  "its {} tensors into several files",
                                  path, head.size() - 8, kMostHeaderBytes, tensors.size()));
  }
  HashedFile file(path);
  file.write(std::as_bytes(std::span(head)));
  for (const TensorView* tensor : order) file.write(tensor->data);
  const auto data_bytes = header.data_bytes();
  return {static_cast<std::int64_t>(head.size()) + data_bytes, data_bytes, file.finish()};
}

SafetensorsFile::SafetensorsFile(const std::string& path, Links links) : file_(path, links) {
  if (file_.size() < 8) {
    throw InvalidArgument("checkpoint",
                          fmt::format("'{}' is no whole safetensors file: it has {} bytes, and the "
                                      "first 8 are the length of its header",
                                      path, file_.size()));
  }
  std::array<std::byte, 8> first{};
  file_.read(0, first);
  const std::int64_t json_bytes = safetensors_json_bytes(first, file_.size(), path);
  std::string json(static_cast<std::size_t>(json_bytes), '\0');
  file_.read(8, std::as_writable_bytes(std::span(json)));
  data_start_ = 8 + json_bytes;
  header_ = parse_safetensors_header(json, file_.size() - data_start_, path);
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) places_[header_.tensors[i].name] = i;
}

const TensorRecord* SafetensorsFile::find(std::string_view name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &header_.tensors[place->second];
}

void SafetensorsFile::read(const TensorRecord& tensor, std::span<std::byte> into) const {
  if (static_cast<std::int64_t>(into.size()) != tensor.bytes()) {
    throw InvalidArgument(
        "checkpoint", fmt::format("tensor {} of '{}' has {} bytes, room is for {}",
                                  shown(tensor.name), file_.path(), tensor.bytes(), into.size()));
  }
  file_.read(data_start_ + tensor.begin, into);
}

}  // namespace pipewright
