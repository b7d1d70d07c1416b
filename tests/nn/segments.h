#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipewright/nn/tensors.h"

namespace pipewright::testing_nn {

using torch::Tensor;

/// A piece of a model to run forward and backward: what a stage or a layer does for a micro-batch.
struct Segment {
  Tensors parameters;
  std::function<Tensors(const Tensors&)> forward;
  Tensors inputs;  // data; integers need no gradient
};

/// A segment that owns `module`, with the module's parameters.
template <typename Holder, typename Forward>
Segment segment_of(Holder module, torch::Dtype dtype, Tensors inputs, Forward forward) {
  module->to(dtype);
  for (Tensor& input : inputs) {
    if (input.is_floating_point()) input = input.to(dtype);
  }
  return {module->parameters(),
          [module, forward](const Tensors& in) mutable -> Tensors { return forward(module, in); },
          std::move(inputs)};
}

/// Doubles its input's share and adds a weight: a custom function that feeds an input and a weight.
struct ScaleAndShift : torch::autograd::Function<ScaleAndShift> {
  static inline int num_backwards = 0;

  static Tensor forward(torch::autograd::AutogradContext*, Tensor x, Tensor weight) {
    return 2 * x + weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    ++num_backwards;
    return {2 * gradients[0], gradients[0].sum(0)};
  }
};

inline Segment block(torch::Dtype dtype) {
  torch::nn::Sequential m(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                          torch::nn::Linear(8, 32), torch::nn::GELU(), torch::nn::Linear(32, 8));
  return segment_of(m, dtype, {torch::randn({6, 8})},
                    [](auto& f, const Tensors& in) { return Tensors{in[0] + f->forward(in[0])}; });
}

inline Segment conv(torch::Dtype dtype) {
  using Conv = torch::nn::Conv2d;
  torch::nn::Sequential m(Conv(torch::nn::Conv2dOptions(3, 6, 3).padding(1)),
                          torch::nn::BatchNorm2d(6), torch::nn::ReLU(torch::nn::ReLUOptions(true)),
                          Conv(torch::nn::Conv2dOptions(6, 6, 3).stride(2)),
                          torch::nn::GroupNorm(torch::nn::GroupNormOptions(2, 6)),
                          torch::nn::MaxPool2d(2), torch::nn::Flatten(), torch::nn::Linear(24, 5));
  return segment_of(m, dtype, {torch::randn({4, 3, 10, 10})},
                    [](auto& f, const Tensors& in) { return Tensors{f->forward(in[0])}; });
}

inline Segment lstm(torch::Dtype dtype) {
  torch::nn::LSTM m(torch::nn::LSTMOptions(6, 5).num_layers(2).bidirectional(true));
  return segment_of(m, dtype,
                    {torch::randn({7, 3, 6}), torch::randn({4, 3, 5}), torch::randn({4, 3, 5})},
                    [](auto& f, const Tensors& in) {
                      auto [out, state] = f->forward(in[0], std::make_tuple(in[1], in[2]));
                      return Tensors{out, std::get<1>(state)};
                    });
}

inline Segment attention(torch::Dtype dtype) {
  torch::nn::MultiheadAttention m(torch::nn::MultiheadAttentionOptions(8, 2));
  return segment_of(m, dtype, {torch::randn({5, 3, 8}), torch::randn({4, 3, 8})},
                    [](auto& f, const Tensors& in) {
                      return Tensors{std::get<0>(f->forward(in[0], in[1], in[1])), in[1]};
                    });
}

/// The weights of the first stage: no input needs a gradient, and the table is used at the end too.
inline Segment tied_embedding(torch::Dtype dtype) {
  torch::nn::Embedding m(11, 8);
  return segment_of(m, dtype, {torch::randint(11, {4, 3}, torch::kLong)},
                    [](auto& f, const Tensors& in) {
                      return Tensors{f->forward(in[0]).tanh().matmul(f->weight.t())};
                    });
}

/// Integers beside activations, a position table, and an output that needs no gradient.
inline Segment integers(torch::Dtype dtype) {
  torch::nn::Embedding m(11, 8);
  return segment_of(m, dtype, {torch::randn({4, 8}), torch::randint(11, {4}, torch::kLong)},
                    [](auto& f, const Tensors& in) {
                      return Tensors{in[0] * f->forward(in[1]), in[1], in[0].detach()};
                    });
}

/// One weight by several paths, some through nodes that only weights lead to (a weight norm).
inline Segment many_paths(torch::Dtype dtype) {
  torch::nn::Linear m(8, 8);
  return segment_of(m, dtype, {torch::randn({6, 8})}, [](auto& f, const Tensors& in) {
    const Tensor normed = f->weight / f->weight.norm(2, 1, true);
    Tensor x = torch::nn::functional::linear(in[0], normed, f->bias);
    x = torch::sigmoid(f->forward(x)) * f->bias + f->forward(x);
    return Tensors{torch::nn::functional::linear(x, normed), normed.sum(), x};
  });
}

/// In-place work with weights on activations.
inline Segment in_place(torch::Dtype dtype) {
  torch::nn::Linear m(8, 8);
  return segment_of(m, dtype, {torch::randn({6, 3, 8})}, [](auto& f, const Tensors& in) {
    Tensor x = in[0] * 2;
    x.select(1, 2).zero_();  // a node that is not LibTorch's plainest, but leads to the input alone
    x = x.add_(f->bias).tanh();
    const Tensor y = torch::empty_like(x).copy_(x).mul_(f->bias);
    return Tensors{f->forward(y).relu_(), (in[0] + 1).copy_(f->bias)};
  });
}

/// A weight written into parts of an activation (a class token).
inline Segment class_token(torch::Dtype dtype) {
  torch::nn::Linear m(8, 8);
  return segment_of(m, dtype, {torch::randn({6, 3, 8})}, [](auto& f, const Tensors& in) {
    Tensor x = in[0] * 2;
    x.select(1, 0).copy_(f->bias);
    x.select(1, 1).add_(f->bias);
    return Tensors{f->forward(x)};
  });
}

/// Outputs that are an input, a view of one, a parameter, and one of them twice.
inline Segment passed_on(torch::Dtype dtype) {
  torch::nn::Linear m(8, 8);
  return segment_of(m, dtype, {torch::randn({6, 8}), torch::randn({2, 8})},
                    [](auto& f, const Tensors& in) {
                      const Tensor y = f->forward(in[0]);
                      return Tensors{in[0], in[0].view({2, 24}), f->bias, y, y, in[1]};
                    });
}

/// Ends in a loss.
inline Segment loss(torch::Dtype dtype) {
  torch::nn::Linear m(8, 5);
  return segment_of(m, dtype, {torch::randn({6, 8}), torch::randint(5, {6}, torch::kLong)},
                    [](auto& f, const Tensors& in) {
                      return Tensors{torch::cross_entropy_loss(f->forward(in[0]), in[1])};
                    });
}

inline Segment custom(torch::Dtype dtype) {
  torch::nn::Linear m(8, 8);
  return segment_of(m, dtype, {torch::randn({6, 8})}, [](auto& f, const Tensors& in) {
    return Tensors{f->forward(ScaleAndShift::apply(f->forward(in[0]), f->bias))};
  });
}

/// A layer without weights.
inline Segment weightless(torch::Dtype dtype) {
  torch::nn::Tanh m;
  return segment_of(m, dtype, {torch::randn({6, 8})},
                    [](auto& f, const Tensors& in) { return Tensors{f->forward(in[0]).exp()}; });
}

struct Kind {
  std::string name;
  Segment (*make)(torch::Dtype);
};

inline std::vector<Kind> all_kinds() {
  return {{"block", block},
          {"conv", conv},
          {"lstm", lstm},
          {"attention", attention},
          {"tied_embedding", tied_embedding},
          {"integers", integers},
          {"many_paths", many_paths},
          {"in_place", in_place},
          {"class_token", class_token},
          {"passed_on", passed_on},
          {"loss", loss},
          {"custom", custom},
          {"weightless", weightless}};
}

}  // namespace pipewright::testing_nn
