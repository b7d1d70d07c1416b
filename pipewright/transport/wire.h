#pragma once

#include <cstdint>
#include <vector>

#include "pipewright/transport/transport.h"

namespace pipewright {

// How a message looks between processes: a header with dtypes, sizes and strides, and one buffer
// with the bytes of all tensors. Of a tensor its span of memory travels, so that it arrives with
// the strides it left with: kernels may add in another order where they differ.

/// Describes one tensor.
struct TensorHeader {
  bool defined = false;
  bool needs_gradient = false;
  torch::ScalarType dtype = torch::kFloat32;
  std::vector<std::int64_t> sizes, strides;

  std::int64_t span_bytes() const;
  friend bool operator==(const TensorHeader&, const TensorHeader&) = default;
};

/// Describes a message: when it is known, the bytes alone need travel.
struct MessageHeader {
  std::vector<TensorHeader> tensors;
  bool says_gradients = false;  // the message has needs_gradient

  /// Of the buffer, with the mark at its front.
  std::int64_t buffer_bytes() const;
  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

/// The message without what is no memory: conjugated and negated views, which are one by a bit.
Message plain(Message message);

/// Throws InvalidArgument for tensors that have no strides (sparse, quantized).
void check_tensors(const Message& message);
MessageHeader header_of(const Message& message);

/// As numbers, and back. Throws TransportError for numbers that describe nothing.
std::vector<std::int64_t> to_numbers(const MessageHeader& header);
MessageHeader header_from(const std::vector<std::int64_t>& numbers);

/// What stands at the front of every buffer.
enum class Mark : std::uint8_t {
  kAsExpected,     // the tensors follow
  kHeaderFollows,  // nothing here: the shapes have changed, a header and another buffer come
};

/// The buffer of a plain message whose tensors are on the CPU.
torch::Tensor pack(const Message& message, const MessageHeader& header);

/// The same into memory of buffer_bytes().
void pack_into(const Message& message, const MessageHeader& header, char* at);

/// The same of one whose tensors are all on a device. On a GPU it is made on the current stream,
/// and has no mark.
torch::Tensor pack_on(const Message& message, const MessageHeader& header, torch::Device device);

/// A buffer of that size which says that a header follows.
torch::Tensor changed_buffer(std::int64_t bytes);
Mark mark_of(const torch::Tensor& buffer);

/// The message in a buffer, on the buffer's device, whose memory its tensors share.
Message unpack(const torch::Tensor& buffer, const MessageHeader& header);

}  // namespace pipewright
