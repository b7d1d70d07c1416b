#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "pipewright/nn/loss.h"
#include "pipewright/nn/random.h"
#include "pipewright/nn/sequence.h"
#include "pipewright/train/trainer.h"

namespace pipewright {

/// What a test model contains beside linear layers.
struct Features {
  bool skips = false;
  bool tied = false;
  bool batch_norm = false;
  bool dropout = false;
  bool masked = false;  // some targets do not count
  bool frozen = false;
};

/// x and what is stashed of it.
struct TwinImpl : torch::nn::Module {
  explicit TwinImpl(int size) : linear(register_module("linear", torch::nn::Linear(size, size))) {}
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    const auto y = torch::tanh(linear(x));
    return {y, y};
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(Twin);

struct JoinImpl : torch::nn::Module {
  explicit JoinImpl(int size)
      : linear(register_module("linear", torch::nn::Linear(2 * size, size))) {}
  torch::Tensor forward(torch::Tensor x, torch::Tensor skip) {
    return x + torch::gelu(linear(torch::cat({x, skip}, -1)));
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(Join);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int size)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({size})))),
        up(register_module("up", torch::nn::Linear(size, 2 * size))),
        down(register_module("down", torch::nn::Linear(2 * size, size))) {}
  torch::Tensor forward(torch::Tensor x) { return x + down(torch::gelu(up(norm(x)))); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

/// A head whose weight is an embedding's.
struct TiedHeadImpl : torch::nn::Module {
  explicit TiedHeadImpl(const torch::Tensor& table) {
    weight = register_parameter("weight", table);
  }
  torch::Tensor forward(torch::Tensor x) { return torch::matmul(x, weight.t()); }
  torch::Tensor weight;
};
TORCH_MODULE(TiedHead);

constexpr int kWidth = 6;
constexpr int kVocabulary = 11;

/// Ten to twelve layers over token ids (rows,) to logits (rows, vocabulary), in float64, the same
/// weights each time.
inline Sequence make_model(const Features& f) {
  torch::manual_seed(5);
  Sequence model;
  torch::nn::Embedding embedding(kVocabulary, kWidth);
  model.add("embed", embedding);
  model.add("block0", Block(kWidth));
  if (f.skips) model.add("twin", Twin(kWidth), {.stash = {"a"}});
  model.add("fc1", torch::nn::Linear(kWidth, kWidth));
  model.add("relu", torch::nn::ReLU(torch::nn::ReLUOptions(true)));
  if (f.batch_norm) model.add("norm", torch::nn::BatchNorm1d(kWidth));
  if (f.dropout) model.add("drop", torch::nn::Dropout(0.3));
  if (f.skips) model.add("twin2", Twin(kWidth), {.stash = {"b"}});
  model.add("block1", Block(kWidth), {.checkpoint = true});
  if (f.skips) model.add("join_a", Join(kWidth), {.pop = {"a"}});
  model.add("fc2", torch::nn::Linear(kWidth, kWidth));
  if (f.skips) model.add("join_b", Join(kWidth), {.pop = {"b"}});
  if (f.dropout) {
    model.add("drop2", [](torch::Tensor x) { return torch::nn::functional::dropout(x); });
  }
  model.add("tanh", torch::nn::Tanh());
  model.add("block2", Block(kWidth));
  if (f.tied) {
    model.add("head", TiedHead(embedding->weight));
  } else {
    model.add("head", torch::nn::Linear(kWidth, kVocabulary));
  }
  for (const Layer& layer : model.layers()) {
    if (layer.module) layer.module->to(torch::kFloat64);
  }
  if (f.frozen) {
    for (auto& parameter : model.layers()[1].module->parameters()) parameter.requires_grad_(false);
  }
  return model;
}

/// Every way to recompute.
inline constexpr RecomputeMode kRecomputeModes[] = {
    RecomputeMode::kNone,  RecomputeMode::kAll,   RecomputeMode::kExceptLast,
    RecomputeMode::kEvery, RecomputeMode::kNamed, RecomputeMode::kSqrt};

/// A test's name from a schedule's.
template <typename Info>
std::string name_of_schedule(const Info& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return "s_" + name;
}

inline OptimizerFactory sgd(double rate = 0.05, double momentum = 0.9) {
  return [rate, momentum](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                               torch::optim::SGDOptions(rate).momentum(momentum));
  };
}

inline OptimizerFactory adam() {
  return [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                                torch::optim::AdamOptions(1e-2));
  };
}

/// One thread a rank, as bits are promised for the same number of them.
inline Strategy strategy_of(int ranks, int micro_batches, const std::string& schedule = "1f1b") {
  Strategy strategy;
  strategy.ranks = ranks;
  strategy.micro_batches = micro_batches;
  strategy.schedule = schedule;
  strategy.threads_per_rank = 1;
  return strategy;
}

inline void move_to(const Sequence& model, torch::Device device) {
  for (const Layer& layer : model.layers()) {
    if (layer.module) layer.module->to(device);
  }
}

inline Tensors gradients_of(const Sequence& model) {
  Tensors result;
  for (const auto& [name, parameter] : model.named_parameters()) {
    result.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
  }
  return result;
}

inline Tensors state_of(const Trainer& trainer) {
  Tensors result;
  for (const auto& [name, tensor] : trainer.state_dict()) result.push_back(tensor.detach().clone());
  return result;
}

/// The names of those tensors that differ in a bit.
inline std::vector<std::string> different(const Trainer& trainer, const Tensors& state) {
  std::vector<std::string> names;
  const auto own = trainer.state_dict();
  if (own.size() != state.size()) return {"their number"};
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (!own[i].second.equal(state[i])) names.push_back(own[i].first);
  }
  return names;
}

/// The largest difference of any gradient, relative to the largest entry of its tensor; infinite
/// where one has a gradient that the other has not.
inline double gradient_difference(const Sequence& model, const Sequence& reference) {
  const Tensors got = gradients_of(model);
  const Tensors expected = gradients_of(reference);
  double most = got.size() == expected.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    if (got[i].defined() != expected[i].defined()) return INFINITY;
    if (!got[i].defined()) continue;
    const double scale = expected[i].abs().max().item<double>() + 1e-12;
    const auto apart = (expected[i] - got[i].to(expected[i].device())).abs().max().item<double>();
    most = std::max(most, apart / scale);
  }
  return most;
}

inline Batch make_batch(int rows, int step, const Features& f) {
  torch::manual_seed(100 + step);
  Batch batch;
  batch.inputs = {torch::randint(kVocabulary, {rows})};
  batch.targets = {torch::randint(kVocabulary, {rows})};
  if (f.masked) batch.targets[0].masked_fill_(torch::rand({rows}) < 0.3, -100);
  return batch;
}

/// The layers one after the other, as anybody would write it. Random draws as the engine keys them.
inline Tensors plain_forward(const Sequence& model, Tensors x, std::int64_t step,
                             std::int64_t micro_batch, torch::Device device = torch::kCPU) {
  std::map<std::string, torch::Tensor> skips;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Layer& layer = model.layers()[i];
    for (const auto& name : layer.options.pop) x.push_back(skips.at(name));
    const RandomScope random({1, step, micro_batch, static_cast<std::int64_t>(i)}, device);
    x = layer.forward(x);
    for (std::size_t k = 0; k < layer.options.stash.size(); ++k) {
      skips[layer.options.stash[k]] = x[x.size() - layer.options.stash.size() + k];
    }
    x.resize(x.size() - layer.options.stash.size());
  }
  return x;
}

/// Gradients of the mean loss by plain single-device training, over `parts` micro-batches (1: the
/// whole batch), where the model is.
inline double plain_gradients(const Sequence& model, const Loss& loss, const Batch& batch,
                              int parts, std::int64_t step) {
  const torch::Device device = model.named_parameters()[0].second.device();
  std::vector<std::vector<torch::Tensor>> xs;  // by input
  for (const auto& input : batch.inputs) xs.push_back(input.to(device).tensor_split(parts));
  const auto ys = batch.targets[0].to(device).tensor_split(parts);
  double weight = 0;
  for (const auto& y : ys)
    weight += loss.weight ? loss.weight({y}) : static_cast<double>(y.size(0));
  double sum = 0;
  for (int m = 0; m < parts; ++m) {
    const auto i = static_cast<std::size_t>(m);
    Tensors x;
    for (const auto& input : xs) x.push_back(input[i]);
    const LossValue value = loss.value(plain_forward(model, x, step, m, device), {ys[i]});
    (value.sum / weight).backward();
    sum += value.sum.item<double>();
  }
  return sum / weight;
}

}  // namespace pipewright
