#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pipewright {

/// What an instruction does. The Program, the simulator and the measured Timeline share these
/// words.
enum class Kind : std::uint8_t {
  kForward,
  kBackward,        // the whole backward
  kBackwardInput,   // its half that makes the gradient of the stage's input
  kBackwardWeight,  // its half that makes the gradients of the weights
  kRecompute,       // the forward once more, for a backward whose activations were dropped
  kSendForward,
  kRecvForward,
  kSendBackward,
  kRecvBackward,
  kReduce,  // gradients over the data-parallel replicas
  kStep,    // the optimizer
};

inline constexpr std::array kAllKinds = {
    Kind::kForward,      Kind::kBackward,    Kind::kBackwardInput, Kind::kBackwardWeight,
    Kind::kRecompute,    Kind::kSendForward, Kind::kRecvForward,   Kind::kSendBackward,
    Kind::kRecvBackward, Kind::kReduce,      Kind::kStep};

/// The name in text, CSV and pictures: F, B, I, W, R, SEND_F, RECV_F, SEND_B, RECV_B, REDUCE, STEP.
std::string_view kind_name(Kind kind);

/// The kind of that name, if there is one.
std::optional<Kind> parse_kind(std::string_view name);

/// What the kind means, in words for a reader: "forward", "backward (input gradient)".
std::string_view kind_words(Kind kind);

/// True for F, B, I, W and R: a stage's own work on one micro-batch.
constexpr bool is_compute(Kind kind) { return kind <= Kind::kRecompute; }

/// True for B, I and W.
constexpr bool is_backward(Kind kind) {
  return kind == Kind::kBackward || kind == Kind::kBackwardInput || kind == Kind::kBackwardWeight;
}

constexpr bool is_send(Kind kind) {
  return kind == Kind::kSendForward || kind == Kind::kSendBackward;
}

constexpr bool is_recv(Kind kind) {
  return kind == Kind::kRecvForward || kind == Kind::kRecvBackward;
}

/// True for REDUCE and STEP, which concern a stage once a step and no single micro-batch.
constexpr bool is_once_a_step(Kind kind) { return kind >= Kind::kReduce; }

}  // namespace pipewright
