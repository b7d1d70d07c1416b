// What the made clicks are for: a model that looks at fields together learns more than one that
// adds up what each of them says, and that is visible in the area under the curve.
#include <gtest/gtest.h>

#include "pipewright/data/click_source.h"
#include "pipewright/data/loader.h"
#include "pipewright/data/metrics.h"
#include "pipewright/input/generated_clicks.h"

namespace pipewright {
namespace {

constexpr std::int64_t kRows = 8000;
constexpr std::int64_t kHeldOut = 4000;

std::shared_ptr<ClickSource> clicks(std::int64_t rows, std::int64_t first) {
  return std::make_shared<ClickSource>(
      std::make_shared<GeneratedClicks>(ClickLogOptions{.rows = rows, .first_row = first}));
}

/// A weight a value of a field and a number; with `factors`, a vector each as well, whose products
/// are added up over all pairs of fields (a factorisation machine).
struct Model {
  explicit Model(std::int64_t factors) {
    torch::manual_seed(1);
    if (factors > 0) vectors = (0.1 * torch::randn({8 * 21, factors})).requires_grad_();
  }

  torch::Tensor logits(const Tensors& inputs) const {
    const auto ids = inputs[1] + 21 * torch::arange(8);
    auto sum = bias + inputs[0].matmul(numeric) +
               weights.index_select(0, ids.flatten()).view({-1, 8}).sum(1);
    if (!vectors.defined()) return sum;
    const auto rows = vectors.index_select(0, ids.flatten()).view({-1, 8, vectors.size(1)});
    return sum + 0.5 * (rows.sum(1).square() - rows.square().sum(1)).sum(1);
  }

  std::vector<torch::Tensor> parameters() const {
    std::vector<torch::Tensor> all = {bias, numeric, weights};
    if (vectors.defined()) all.push_back(vectors);
    return all;
  }

  torch::Tensor bias = torch::zeros({1}, torch::requires_grad());
  torch::Tensor numeric = torch::zeros({4}, torch::requires_grad());
  torch::Tensor weights = torch::zeros({8 * 21}, torch::requires_grad());
  torch::Tensor vectors;
};

double trained_area(std::int64_t factors) {
  const Model model(factors);
  torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(0.02));
  DataLoader loader(clicks(kRows, 0), {.batch = 400});
  for (std::int64_t step = 0; step < 12 * loader.batches_per_epoch(); ++step) {
    const SampleBatch batch = loader.next();
    optimizer.zero_grad();
    torch::binary_cross_entropy_with_logits(model.logits(batch.inputs), batch.targets[0])
        .backward();
    optimizer.step();
  }
  DataLoader held_out(clicks(kHeldOut, kRows), {.batch = kHeldOut, .shuffle = false});
  const SampleBatch batch = held_out.next();
  return area_under_curve(model.logits(batch.inputs), batch.targets[0]).value();
}

TEST(GeneratedClicks, ShowWhetherAModelLearnsInteractions) {
  const double sum_alone = trained_area(0);
  const double with_products = trained_area(6);
  EXPECT_LT(sum_alone, 0.62);
  EXPECT_GT(with_products, 0.75);
}

}  // namespace
}  // namespace pipewright
