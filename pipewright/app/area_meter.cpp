#include "pipewright/app/area_meter.h"

#include <mutex>
#include <utility>

#include "pipewright/data/metrics.h"

namespace pipewright::app {
namespace {

nlohmann::json numbers_of(const Tensors& parts) {
  if (parts.empty()) return nlohmann::json::array();
  const auto all = torch::cat(parts).to(torch::kCPU, torch::kFloat64).contiguous();
  const auto* first = all.data_ptr<double>();
  return std::vector<double>(first, first + all.numel());
}

void append(const nlohmann::json& numbers, std::vector<double>* all) {
  for (const auto& number : numbers) all->push_back(number.get<double>());
}

}  // namespace

struct AreaMeter::Seen {
  std::mutex mutex;
  Tensors scores;
  Tensors labels;
};

AreaMeter::AreaMeter() : seen_(std::make_shared<Seen>()) {}

Loss AreaMeter::watch(Loss loss) const {
  Loss watched = loss;
  watched.value = [value = std::move(loss.value), seen = seen_](
                      const Tensors& outputs, const Tensors& targets) -> LossValue {
    LossValue result = value(outputs, targets);
    const std::lock_guard lock(seen->mutex);
    seen->scores.push_back(outputs[0].detach().flatten());
    seen->labels.push_back(targets[0].detach().flatten());
    return result;
  };
  return watched;
}

std::pair<Tensors, Tensors> AreaMeter::swap_out() {
  const std::lock_guard lock(seen_->mutex);
  return {std::exchange(seen_->scores, {}), std::exchange(seen_->labels, {})};
}

std::optional<double> AreaMeter::take(const Gather& gather) {
  const auto [own_scores, own_labels] = swap_out();
  // A loss that is no number has its own message.
  const bool finite =
      own_scores.empty() || torch::isfinite(torch::cat(own_scores)).all().item<bool>();
  const auto all = gather(finite ? nlohmann::json{numbers_of(own_scores), numbers_of(own_labels)}
                                 : nlohmann::json());
  std::vector<double> scores;
  std::vector<double> labels;
  for (const auto& one : all) {
    if (one.is_null()) return std::nullopt;
    append(one.at(0), &scores);
    append(one.at(1), &labels);
  }
  if (scores.empty()) return std::nullopt;
  return area_under_curve(torch::tensor(scores, torch::kFloat64),
                          torch::tensor(labels, torch::kFloat64));
}

void AreaMeter::forget() { swap_out(); }

}  // namespace pipewright::app
