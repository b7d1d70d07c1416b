#pragma once

#include <c10/core/Event.h>
#include <torch/torch.h>

#include <chrono>
#include <compare>
#include <memory>
#include <string>
#include <vector>

namespace pipewright {

/// What a message carries between stages.
enum class MessageKind : std::uint8_t { kActivation, kGradient, kSkip, kSkipGradient };

/// Names one message of a step. `stage` is the stage that takes it; `index` tells skips apart.
struct MessageKey {
  MessageKind kind = MessageKind::kActivation;
  int stage = 0;
  int micro_batch = 0;
  int index = 0;

  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};

std::string to_text(const MessageKey& key);

/// The tensors of a message, detached; undefined ones travel too.
struct Message {
  std::vector<torch::Tensor> tensors;
  std::vector<char> needs_gradient = {};  // which of them the sender wants a gradient for
  /// What a GPU must have done before the tensors may be read; the transport's own.
  std::vector<std::shared_ptr<c10::Event>> ready = {};
};

/// Moves messages between ranks. Every message is sent once and received once. All calls may be
/// made from the rank's own thread at the same time as those of others.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Hands a message over; does not wait for the receiver, nor for what this thread has launched on
  /// its current stream.
  virtual void send(int to_rank, const MessageKey& key, Message message) = 0;

  /// The message, when it is there, its tensors on the device of the stage that takes it, for this
  /// thread's current stream to read. Throws TransportError at the deadline, or once abort() was
  /// called.
  virtual Message receive(int at_rank, const MessageKey& key) = 0;

  /// Wakes every waiting rank; receives throw from now on, until reset().
  virtual void abort() = 0;

  /// Drops what was not received and forgets abort(). No rank may be in a call.
  virtual void reset() = 0;
};

}  // namespace pipewright
