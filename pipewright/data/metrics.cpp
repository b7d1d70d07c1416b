#include "pipewright/data/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>
#include <vector>

#include "pipewright/base/error.h"
#include "pipewright/input/metrics.h"

namespace pipewright {
namespace {

std::string shape_of(const torch::Tensor& tensor) {
  std::ostringstream words;
  words << tensor.sizes();
  return words.str();
}

/// A label that is neither 0 nor 1 as a number that is neither.
std::int64_t label_of(double label) { return label == 0 ? 0 : label == 1 ? 1 : 2; }

}  // namespace

double Accuracy::share() const {
  return counted == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(counted);
}

Accuracy& Accuracy::operator+=(const Accuracy& other) {
  correct += other.correct;
  counted += other.counted;
  return *this;
}

Accuracy accuracy(const torch::Tensor& logits, const torch::Tensor& targets, std::int64_t ignored) {
  const torch::NoGradGuard no_grad;
  if (logits.dim() != targets.dim() + 1 ||
      logits.sizes().slice(0, static_cast<std::size_t>(targets.dim())) != targets.sizes()) {
    throw InvalidArgument("accuracy", fmt::format("logits {} for targets {}; they have one "
                                                  "dimension more, of classes",
                                                  shape_of(logits), shape_of(targets)));
  }
  const auto counts = targets != ignored;
  const auto right = (logits.argmax(-1) == targets).logical_and(counts);
  return {right.sum().item<std::int64_t>(), counts.sum().item<std::int64_t>()};
}

std::optional<double> area_under_curve(const torch::Tensor& scores, const torch::Tensor& labels) {
  const torch::NoGradGuard no_grad;
  const auto flat_scores = scores.to(torch::kCPU, torch::kFloat64).contiguous().view(-1);
  const auto flat_labels = labels.to(torch::kCPU, torch::kFloat64).contiguous().view(-1);
  std::vector<std::int64_t> whole;
  for (std::int64_t i = 0; i < flat_labels.numel(); ++i) {
    whole.push_back(label_of(flat_labels.data_ptr<double>()[i]));
  }
  return area_under_curve(std::span<const double>(flat_scores.data_ptr<double>(),
                                                  static_cast<std::size_t>(flat_scores.numel())),
                          whole);
}

}  // namespace pipewright
