#pragma once

#include "pipewright/models/click_models.h"

namespace pipewright {

// The layers of the models of clicks.

/// Embeddings of all fields in one table: field f's id i is row f * buckets + i.
struct FieldTableImpl : torch::nn::Module {
  FieldTableImpl(const ClickModelSizes& sizes, std::int64_t dim, double deviation);
  torch::Tensor forward(const torch::Tensor& ids);  // (B, F) -> (B, F, dim)

  std::int64_t fields, buckets;
  bool sparse;
  torch::Tensor weight;
};
TORCH_MODULE(FieldTable);

/// A weight for every id and number: what a linear model tells.
struct SingleFeaturesImpl : torch::nn::Module {
  explicit SingleFeaturesImpl(const ClickModelSizes& sizes);
  torch::Tensor forward(const torch::Tensor& numbers, const torch::Tensor& ids);  // (B)

  FieldTable table{nullptr};
  torch::nn::Linear numeric{nullptr};
};
TORCH_MODULE(SingleFeatures);

/// linear, ReLU, dropout.
struct HiddenImpl : torch::nn::Module {
  HiddenImpl(std::int64_t from, std::int64_t to, double dropout);
  torch::Tensor forward(const torch::Tensor& x);  // (B, from) -> (B, to)

  double dropout;
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Hidden);

/// One number a sample, with what other branches say added.
struct ClickHeadImpl : torch::nn::Module {
  explicit ClickHeadImpl(std::int64_t from);
  torch::Tensor forward(const Tensors& x);  // (B, from), then (B) any number of times -> (B)

  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(ClickHead);

/// Adds `depth` hidden layers, the first of inputs of size `from`; returns the last one's size.
std::int64_t add_hidden(const ClickModelSizes& sizes, const std::string& name, std::int64_t from,
                        Sequence* model);
void add_head(const ClickModelSizes& sizes, std::int64_t from, std::vector<std::string> pop,
              Sequence* model);

}  // namespace pipewright
