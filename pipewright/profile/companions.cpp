#include "pipewright/profile/companions.h"

#include <torch/torch.h>

#include <algorithm>

#include "pipewright/base/cores.h"

namespace pipewright {

Companions::Companions(int count) {
  const int others = static_cast<int>(usable_cores().size()) - torch::get_num_threads();
  for (int i = 0; i < std::min(count, others); ++i) threads_.emplace_back([this] { work(); });
}

Companions::~Companions() {
  ending_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Companions::work() const {
  constexpr int kRows = 128, kWidth = 256, kWeights = 8;  // some MB of weights, as of a stage
  torch::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  const auto input = torch::ones({kRows, kWidth});
  auto made = torch::empty({kRows, 4 * kWidth});
  std::vector<torch::Tensor> weights;
  for (int i = 0; i < kWeights; ++i) weights.push_back(torch::ones({kWidth, 4 * kWidth}));
  for (std::size_t i = 0; !ending_; i = (i + 1) % weights.size()) {
    torch::mm_out(made, input, weights[i]);
    made.tanh_();
    weights[i].addmm_(input.t(), made, /*beta=*/0.5, /*alpha=*/1e-3);
  }
}

}  // namespace pipewright
