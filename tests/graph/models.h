#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "pipewright/graph/graph.h"
#include "pipewright/nn/tensors.h"

namespace pipewright {

inline std::string model_path(const std::string& name) {
  return std::string(PIPEWRIGHT_TEST_DATA) + "/graph/models/" + name + ".pt";
}

inline Graph load_model(const std::string& name) { return Graph::load(model_path(name)); }

/// Inputs of a model of make_models.py for so many rows: the same for the same seed.
inline Tensors make_inputs(const std::string& name, std::int64_t rows, std::uint64_t seed = 7) {
  torch::manual_seed(seed);
  const auto real = [&](std::vector<std::int64_t> sizes) {
    sizes.insert(sizes.begin(), rows);
    return torch::randn(sizes, torch::kDouble);
  };
  const auto whole = [&](std::int64_t columns, std::int64_t below) {
    return torch::randint(below, {rows, columns}, torch::kLong);
  };
  const auto is = [&](const char* start) { return name.rfind(start, 0) == 0; };
  if (is("cnn") || is("resnet")) return {real({2, 6, 6})};
  if (is("unet")) return {real({1, 8, 8})};
  if (is("transformer") || is("tied") || is("lstm")) return {whole(6, 11)};
  if (is("encoder_decoder")) return {whole(5, 11), whole(4, 11)};
  if (is("sequence_first")) return {real({5, 6})};
  if (name == "two_towers") return {real({6}), real({5})};
  if (name == "two_towers_pairs") return {real({6}), real({5}), (real({}) > 0).to(torch::kDouble)};
  if (is("deepfm")) return {whole(4, 20), real({3})};
  if (is("multi_input")) return {real({4}), real({3}), real({2})};
  if (is("control_flow") || is("data_branch") || is("batch_softmax")) return {real({4})};
  if (is("with_loss")) return {real({6}), whole(1, 3).squeeze(1)};
  if (is("summed_loss")) return {real({6}), real({3})};
  if (is("masked_loss")) {
    torch::Tensor mask = (real({}) > -0.5).to(torch::kDouble);
    mask.slice(0, 0, rows, 2).fill_(1);  // of every micro-batch of two rows it leaves something
    return {real({6}), real({3}), mask};
  }
  return {real({6})};  // mlp, multi_output
}

inline const std::vector<std::string>& all_models() {
  static const std::vector<std::string> names = {"mlp",
                                                 "mlp_traced",
                                                 "cnn",
                                                 "cnn_norm",
                                                 "cnn_norm_traced",
                                                 "resnet",
                                                 "unet",
                                                 "transformer",
                                                 "tied",
                                                 "sequence_first",
                                                 "lstm",
                                                 "encoder_decoder",
                                                 "two_towers",
                                                 "deepfm",
                                                 "two_towers_pairs",
                                                 "multi_input",
                                                 "multi_output",
                                                 "control_flow",
                                                 "data_branch",
                                                 "batch_softmax",
                                                 "with_loss",
                                                 "masked_loss",
                                                 "summed_loss"};
  return names;
}

/// What TorchScript's own module returns, as a list; its executor rewrites nothing.
inline Tensors call_module(torch::jit::Module module, const Tensors& inputs) {
  const torch::jit::GraphOptimizerEnabledGuard plain(false);
  const c10::IValue value = module.forward({inputs.begin(), inputs.end()});
  if (value.isTensor()) return {value.toTensor()};
  Tensors result;
  for (const c10::IValue& item : value.toTuple()->elements()) result.push_back(item.toTensor());
  return result;
}

}  // namespace pipewright
