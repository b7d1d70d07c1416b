#include "pipewright/transport/wire.h"

#include <fmt/format.h>

#include <cstring>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

/// Every tensor begins at a multiple of this, the mark before the first among them.
constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

torch::Tensor make_buffer(std::int64_t bytes) {
  return torch::empty({bytes}, torch::dtype(torch::kByte));
}

[[noreturn]] void refuse_header(const char* why) {
  throw TransportError("transport", fmt::format("a message's header makes no sense: {}; do all "
                                                "processes run the same program?",
                                                why));
}

/// Reads a list of numbers from its front.
class Numbers {
 public:
  explicit Numbers(const std::vector<std::int64_t>& numbers) : numbers_(numbers) {}

  std::int64_t next(std::int64_t least, std::int64_t most, const char* what) {
    if (at_ == numbers_.size()) refuse_header("it ends early");
    const std::int64_t number = numbers_[at_++];
    if (number < least || number > most) refuse_header(what);
    return number;
  }
  bool ended() const { return at_ == numbers_.size(); }

 private:
  const std::vector<std::int64_t>& numbers_;
  std::size_t at_ = 0;
};

constexpr std::int64_t kMostTensors = 4096;
constexpr std::int64_t kMostDimensions = 64;
constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

TensorHeader read_tensor(Numbers* numbers) {
  TensorHeader header;
  header.defined = numbers->next(0, 1, "defined or not") != 0;
  header.needs_gradient = numbers->next(0, 1, "with a gradient or not") != 0;
  header.dtype = static_cast<torch::ScalarType>(
      numbers->next(0, static_cast<int>(torch::ScalarType::NumOptions) - 1, "its dtype"));
  if (header.dtype == torch::ScalarType::Undefined || c10::isQIntType(header.dtype))
    refuse_header("its dtype");
  const std::int64_t dimensions = numbers->next(0, kMostDimensions, "its dimensions");
  std::int64_t span = 1;
  std::int64_t elements = 1;  // more than the span where strides are 0
  for (std::int64_t d = 0; d < dimensions; ++d) {
    header.sizes.push_back(numbers->next(0, kMostElements, "a size"));
    header.strides.push_back(numbers->next(0, kMostElements, "a stride"));
    const std::int64_t steps = std::max<std::int64_t>(header.sizes.back() - 1, 0);
    if (steps > 0 && header.strides.back() > (kMostElements - span) / steps)
      refuse_header("its span");
    span += steps * header.strides.back();
    if (steps > 0 && elements > kMostElements / header.sizes.back()) refuse_header("its elements");
    elements *= std::max<std::int64_t>(header.sizes.back(), 1);
  }
  return header;
}

/// Tensors of their own over parts of the buffer, not views of it: writing to one in place must not
/// look like a change of the others.
torch::Tensor part_of(const torch::Tensor& buffer, std::int64_t at, const TensorHeader& header) {
  const auto options = torch::dtype(header.dtype).device(buffer.device());
  if (header.span_bytes() == 0) return torch::empty_strided(header.sizes, header.strides, options);
  return torch::from_blob(
      static_cast<char*>(buffer.data_ptr()) + at, header.sizes, header.strides, [buffer](void*) {},
      options);
}

/// With the strides it has, unless it is expanded: then nothing can be written that way.
torch::Tensor resolved(const torch::Tensor& view) {
  for (std::int64_t d = 0; d < view.dim(); ++d) {
    if (view.stride(d) == 0 && view.size(d) > 1) return view.resolve_conj().resolve_neg();
  }
  return torch::empty_strided(view.sizes(), view.strides(), view.options()).copy_(view);
}

}  // namespace

std::int64_t TensorHeader::span_bytes() const {
  if (!defined) return 0;
  std::int64_t span = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    span += (sizes[d] - 1) * strides[d];
  }
  return span * static_cast<std::int64_t>(c10::elementSize(dtype));
}

std::int64_t MessageHeader::buffer_bytes() const {
  std::int64_t bytes = kAlignment;
  for (const TensorHeader& tensor : tensors) bytes += aligned(tensor.span_bytes());
  return bytes;
}

Message plain(Message message) {
  for (auto& tensor : message.tensors) {
    if (tensor.defined() && (tensor.is_conj() || tensor.is_neg())) tensor = resolved(tensor);
  }
  return message;
}

void check_tensors(const Message& message) {
  for (const torch::Tensor& tensor : message.tensors) {
    if (!tensor.defined()) continue;
    if (tensor.layout() == torch::kStrided && !tensor.is_quantized()) continue;
    throw InvalidArgument("transport",
                          fmt::format("a {} tensor cannot be sent to another process; make it a "
                                      "plain one at the end of the stage",
                                      tensor.is_quantized() ? "quantized" : "sparse"));
  }
}

MessageHeader header_of(const Message& message) {
  check_tensors(message);
  MessageHeader header;
  header.says_gradients = !message.needs_gradient.empty();
  for (std::size_t i = 0; i < message.tensors.size(); ++i) {
    const torch::Tensor& tensor = message.tensors[i];
    TensorHeader& one = header.tensors.emplace_back();
    one.defined = tensor.defined();
    one.needs_gradient = header.says_gradients && message.needs_gradient[i] != 0;
    if (!one.defined) continue;
    one.dtype = tensor.scalar_type();
    one.sizes = tensor.sizes().vec();
    one.strides = tensor.strides().vec();
  }
  return header;
}

std::vector<std::int64_t> to_numbers(const MessageHeader& header) {
  std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(header.tensors.size()),
                                       header.says_gradients ? 1 : 0};
  for (const TensorHeader& tensor : header.tensors) {
    numbers.insert(numbers.end(), {tensor.defined ? 1 : 0, tensor.needs_gradient ? 1 : 0,
                                   static_cast<int>(tensor.dtype),
                                   static_cast<std::int64_t>(tensor.sizes.size())});
    for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
      numbers.push_back(tensor.sizes[d]);
      numbers.push_back(tensor.strides[d]);
    }
  }
  return numbers;
}

MessageHeader header_from(const std::vector<std::int64_t>& numbers) {
  Numbers reader(numbers);
  MessageHeader header;
  const std::int64_t count = reader.next(0, kMostTensors, "the number of tensors");
  header.says_gradients = reader.next(0, 1, "with gradients or not") != 0;
  for (std::int64_t i = 0; i < count; ++i) header.tensors.push_back(read_tensor(&reader));
  if (!reader.ended()) refuse_header("it goes on after its end");
  return header;
}

torch::Tensor pack(const Message& message, const MessageHeader& header) {
  torch::Tensor buffer = make_buffer(header.buffer_bytes());
  pack_into(message, header, static_cast<char*>(buffer.data_ptr()));
  return buffer;
}

void pack_into(const Message& message, const MessageHeader& header, char* at) {
  *at = static_cast<char>(Mark::kAsExpected);
  at += kAlignment;
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    const std::int64_t bytes = header.tensors[i].span_bytes();
    if (bytes > 0) std::memcpy(at, message.tensors[i].data_ptr(), static_cast<std::size_t>(bytes));
    at += aligned(bytes);
  }
}

torch::Tensor pack_on(const Message& message, const MessageHeader& header, torch::Device device) {
  if (device.is_cpu()) return pack(message, header);
  const auto bytes = torch::dtype(torch::kByte).device(device);
  torch::Tensor buffer = torch::empty({header.buffer_bytes()}, bytes);
  std::int64_t at = kAlignment;
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    const std::int64_t span = header.tensors[i].span_bytes();
    if (span > 0) {
      const auto memory = torch::from_blob(message.tensors[i].data_ptr(), {span}, bytes);
      buffer.slice(0, at, at + span).copy_(memory, /*non_blocking=*/true);
    }
    at += aligned(span);
  }
  return buffer;
}

torch::Tensor changed_buffer(std::int64_t bytes) {
  torch::Tensor buffer = make_buffer(bytes);
  *static_cast<char*>(buffer.data_ptr()) = static_cast<char>(Mark::kHeaderFollows);
  return buffer;
}

Mark mark_of(const torch::Tensor& buffer) {
  return static_cast<Mark>(*static_cast<const char*>(buffer.data_ptr()));
}

Message unpack(const torch::Tensor& buffer, const MessageHeader& header) {
  Message message;
  std::int64_t at = kAlignment;
  for (const TensorHeader& tensor : header.tensors) {
    if (header.says_gradients) message.needs_gradient.push_back(tensor.needs_gradient ? 1 : 0);
    message.tensors.push_back(tensor.defined ? part_of(buffer, at, tensor) : torch::Tensor());
    at += aligned(tensor.span_bytes());
  }
  return message;
}

}  // namespace pipewright
