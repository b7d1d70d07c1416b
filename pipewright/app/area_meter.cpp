#include "pipewright/app/area_meter.h"

#include <mutex>

#include "pipewright/data/metrics.h"

namespace pipewright::app {

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

std::optional<double> AreaMeter::take() {
  Tensors scores;
  Tensors labels;
  {
    const std::lock_guard lock(seen_->mutex);
    scores.swap(seen_->scores);
    labels.swap(seen_->labels);
  }
  if (scores.empty()) return std::nullopt;
  const auto all = torch::cat(scores);
  // A loss that is no number has its own message.
  if (!torch::isfinite(all).all().item<bool>()) return std::nullopt;
  return area_under_curve(all, torch::cat(labels));
}

}  // namespace pipewright::app
