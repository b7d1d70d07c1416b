#include "benchmarks/common/waiting_model.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "benchmarks/common/arithmetic.h"

namespace pipewright::bench {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// What a layer does instead of its work.
struct Pause {
  double seconds = 0;       // asleep
  double busy = 0;          // seconds of arithmetic, by the clock
  std::int64_t rounds = 0;  // of arithmetic

  /// What is meant for a row, for so many of them.
  Pause of_rows(std::int64_t rows) const {
    return {seconds, busy * static_cast<double>(rows), rounds * rows};
  }

  void make() const {
    constexpr std::int64_t kSome = 2000;  // some microseconds
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    arithmetic_in_registers(rounds);
    if (busy == 0) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(busy);
    while (std::chrono::steady_clock::now() < end) arithmetic_in_registers(kSome);
  }
};

void save(AutogradContext* context, const Pause& pause) {
  context->saved_data["seconds"] = pause.seconds;
  context->saved_data["busy"] = pause.busy;
  context->saved_data["rounds"] = pause.rounds;
}

Pause saved(AutogradContext* context) {
  return {context->saved_data["seconds"].toDouble(), context->saved_data["busy"].toDouble(),
          context->saved_data["rounds"].toInt()};
}

/// Its input, late; and its gradient, late.
class WaitForInput : public torch::autograd::Function<WaitForInput> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, Pause pause) {
    save(context, pause);
    pause.make();
    return x.clone();
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    saved(context).make();
    return {gradients[0], torch::Tensor()};
  }
};

/// Nothing of a weight, at once; and its gradient, late.
class WaitForWeight : public torch::autograd::Function<WaitForWeight> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& weight, Pause pause) {
    save(context, pause);
    context->saved_data["parameters"] = weight.numel();
    return torch::zeros({});
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& /*gradients*/) {
    saved(context).make();
    return {torch::ones(context->saved_data["parameters"].toInt()), torch::Tensor()};
  }
};

struct WaitingLayer : torch::nn::Module {
  WaitingLayer(Pause a_pause, std::int64_t parameters)
      : pause(a_pause), weight(register_parameter("weight", torch::zeros(parameters))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    // The sum needs a gradient where the batch itself does not: the first layer is as long as
    // others.
    const Pause all = pause.of_rows(x.size(0));
    return WaitForInput::apply(x + WaitForWeight::apply(weight, all), all);
  }

  Pause pause;
  torch::Tensor weight;
};

Sequence make_model(int layers, const Pause& pause, std::int64_t parameters) {
  Sequence model;
  for (int i = 0; i < layers; ++i)
    model.add(fmt::format("wait{}", i), std::make_shared<WaitingLayer>(pause, parameters));
  return model;
}

}  // namespace

Sequence make_waiting_model(int layers, double wait, std::int64_t parameters) {
  return make_model(layers, {.seconds = wait}, parameters);
}

Sequence make_register_model(int layers, std::int64_t rounds_a_row, std::int64_t parameters) {
  return make_model(layers, {.rounds = rounds_a_row}, parameters);
}

Sequence make_busy_model(int layers, double seconds_a_row, std::int64_t parameters) {
  return make_model(layers, {.busy = seconds_a_row}, parameters);
}

}  // namespace pipewright::bench
