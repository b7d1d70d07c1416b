#include "benchmarks/common/waiting_model.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

namespace pipewright::bench {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

void wait(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Its input, late; and its gradient, late.
class WaitForInput : public torch::autograd::Function<WaitForInput> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, double seconds) {
    context->saved_data["seconds"] = seconds;
    wait(seconds);
    return x.clone();
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    wait(context->saved_data["seconds"].toDouble());
    return {gradients[0], torch::Tensor()};
  }
};

/// Nothing of a weight, at once; and its gradient, late.
class WaitForWeight : public torch::autograd::Function<WaitForWeight> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& weight,
                               double seconds) {
    context->saved_data["seconds"] = seconds;
    context->saved_data["parameters"] = weight.numel();
    return torch::zeros({});
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& /*gradients*/) {
    wait(context->saved_data["seconds"].toDouble());
    return {torch::ones(context->saved_data["parameters"].toInt()), torch::Tensor()};
  }
};

struct WaitingLayer : torch::nn::Module {
  WaitingLayer(double wait_seconds, std::int64_t parameters)
      : seconds(wait_seconds), weight(register_parameter("weight", torch::zeros(parameters))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    // The sum needs a gradient where the batch itself does not: the first layer is as long as
    // others.
    return WaitForInput::apply(x + WaitForWeight::apply(weight, seconds), seconds);
  }

  double seconds;
  torch::Tensor weight;
};

}  // namespace

Sequence make_waiting_model(int layers, double wait, std::int64_t parameters) {
  Sequence model;
  for (int i = 0; i < layers; ++i)
    model.add(fmt::format("wait{}", i), std::make_shared<WaitingLayer>(wait, parameters));
  return model;
}

}  // namespace pipewright::bench
