#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "pipewright/models/transformer.h"

namespace pipewright {

// What the convolutional networks here have in common.

/// A picture on its way through a network: what a layer gets, for the next one's size and cost.
struct Picture {
  std::int64_t channels = 3;
  std::int64_t size = 224;  // height and width

  /// What a stride leaves of it.
  std::int64_t after(std::int64_t stride) const { return (size + stride - 1) / stride; }
};

/// Multiply-adds of a convolution with a square kernel that leaves `size` x `size`.
double convolution_cost(std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t size);

/// Without bias, weights drawn for the ReLU that follows; keeps the size but for the stride.
torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, torch::IntArrayRef kernel,
                              torch::IntArrayRef stride);
torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t kernel,
                              std::int64_t stride = 1);

/// A convolution and a batch norm, whose running statistics move once a mini-batch (batch_norm.h).
struct ConvolutionNormImpl : torch::nn::Module {
  ConvolutionNormImpl(std::int64_t from, std::int64_t to, torch::IntArrayRef kernel,
                      torch::IntArrayRef stride)
      : convolution(
            register_module("convolution", pipewright::convolution(from, to, kernel, stride))),
        norm(register_module("norm", torch::nn::BatchNorm2d(to))) {}
  ConvolutionNormImpl(std::int64_t from, std::int64_t to, std::int64_t kernel,
                      std::int64_t stride = 1)
      : ConvolutionNormImpl(from, to, torch::IntArrayRef({kernel, kernel}),
                            torch::IntArrayRef({stride, stride})) {}
  torch::Tensor forward(torch::Tensor x) { return norm(convolution(x)); }

  torch::nn::Conv2d convolution;
  torch::nn::BatchNorm2d norm;
};
TORCH_MODULE(ConvolutionNorm);

/// The mean over the picture and a linear layer: (B, C, H, W) to logits (B, classes).
struct ClassifierImpl : torch::nn::Module {
  ClassifierImpl(std::int64_t from, std::int64_t classes)
      : linear(register_module("linear", torch::nn::Linear(from, classes))) {}
  torch::Tensor forward(torch::Tensor x) { return linear(x.mean({2, 3})); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Classifier);

}  // namespace pipewright
