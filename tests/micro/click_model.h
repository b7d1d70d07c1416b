#pragma once

#include <torch/torch.h>

namespace pipewright {

constexpr std::int64_t kFields = 3;
constexpr std::int64_t kValues = 4;  // few: rows of a batch share them
constexpr std::int64_t kNumbers = 2;

struct ClickModelOptions {
  bool sparse = false;
  double dropout = 0;
};

/// An embedding of fields, numbers beside it, and two layers; float64.
struct ClickModelImpl : torch::nn::Module {
  explicit ClickModelImpl(const ClickModelOptions& o) : options(o) {
    table = register_parameter("table", torch::randn({kValues, 5}, torch::kDouble));
    hidden = register_module("hidden", torch::nn::Linear(kFields * 5 + kNumbers, 7));
    last = register_module("last", torch::nn::Linear(7, 1));
    to(torch::kDouble);
  }

  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& numbers) {
    const auto rows = torch::embedding(table, ids, -1, false, options.sparse);  // (B, fields, 5)
    const auto x = torch::cat({rows.flatten(1), numbers}, 1);
    return last(torch::dropout(torch::tanh(hidden(x)), options.dropout, is_training()));
  }

  ClickModelOptions options;
  torch::Tensor table;
  torch::nn::Linear hidden{nullptr}, last{nullptr};
};
TORCH_MODULE(ClickModel);

/// The same weights every time.
inline ClickModel make_click_model(const ClickModelOptions& options) {
  torch::manual_seed(11);
  return ClickModel(options);
}

}  // namespace pipewright
