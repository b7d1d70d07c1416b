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
enum class MessageKind : std::uint8_t {
  kActivation,
  kGradient,
  kSkip,
  kSkipGradient,
  kNumbers,       // of a rank, for another one
  kTiedGradient,  // of a use of a tied weight, for the stage that owns it
  kTiedValue,     // of a tied weight, for a stage that uses it
};

/// Names one message of a step. `stage` is the stage that takes it; `index` tells skips, ranks and
/// uses of tied weights apart.
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

/// Where a message's tensors are wanted: on its stage's device, numbers on the CPU.
torch::Device device_of(const MessageKey& key, const std::vector<torch::Device>& stage_devices);

/// Moves messages between ranks. Every message is sent once and received once. All calls may be
/// made from the rank's own thread at the same time as those of others.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Hands a message over; does not wait for the receiver, nor for what this thread has launched on
  /// its current stream.
  virtual void send(int to_rank, const MessageKey& key, Message message) = 0;

  /// Says that receive() of this message will come: it may be taken beside other work.
  virtual void expect(int /*from_rank*/, const MessageKey& /*key*/) {}

  /// The message, when it is there, its tensors on the device of the stage that takes it, for this
  /// thread's current stream to read. Throws TransportError at the deadline, or once abort() was
  /// called.
  virtual Message receive(int at_rank, int from_rank, const MessageKey& key) = 0;

  /// Wakes every waiting rank of this process; receives throw from now on, until reset().
  virtual void abort() = 0;

  /// Drops what was not received and forgets abort(). No rank may be in a call.
  virtual void reset() = 0;
};

}  // namespace pipewright
