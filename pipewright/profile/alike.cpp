#include "pipewright/profile/alike.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>

#include "pipewright/profile/moment.h"

namespace pipewright {
namespace {

constexpr std::array kTimes = {&LayerCost::forward_seconds, &LayerCost::backward_seconds,
                               &LayerCost::backward_input_seconds,
                               &LayerCost::backward_weight_seconds, &LayerCost::step_seconds};

/// More than measurements of the same work differ by, as a share.
constexpr double kFar = 0.25;

/// The same text for layers that should take the same time.
std::string kind_of(const Layer& layer, const LayerCost& cost) {
  std::string kind = layer.module->name();
  for (const auto& item : layer.module->named_parameters()) {
    const torch::Tensor& parameter = item.value();
    kind += fmt::format(" {} {} {} {} {}", item.key(), fmt::join(parameter.sizes(), "x"),
                        static_cast<int>(parameter.scalar_type()), parameter.device().str(),
                        parameter.requires_grad());
  }
  return fmt::format("{} {} {} {} {} {}", kind, cost.output_bytes, cost.saved_bytes,
                     cost.forward_temp_bytes, cost.backward_temp_bytes, cost.weight_half_bytes);
}

using Members = std::vector<LayerCost*>;

double median_of(const Members& members, double LayerCost::*time) {
  std::vector<double> values;
  for (const LayerCost* member : members) values.push_back(member->*time);
  return median(std::move(values));
}

/// Those whose forward and backward take about what those of the others do.
Members near(const Members& members) {
  Members result;
  for (LayerCost* member : members) {
    const auto is_near = [&](double LayerCost::*time) {
      const double middle = median_of(members, time);
      return std::abs(member->*time - middle) <= kFar * middle;
    };
    if (is_near(&LayerCost::forward_seconds) && is_near(&LayerCost::backward_seconds))
      result.push_back(member);
  }
  return result;
}

}  // namespace

void share_times_of_alike(const Sequence& model, std::vector<LayerCost>* costs) {
  std::map<std::string, Members> kinds;
  for (std::size_t i = 1; i + 1 < costs->size(); ++i) {
    const Layer& layer = model.layers()[i];
    if (layer.module) kinds[kind_of(layer, (*costs)[i])].push_back(&(*costs)[i]);
  }
  for (const auto& [kind, all] : kinds) {
    const Members members = near(all);
    for (const auto time : kTimes) {
      double mean = 0;
      for (const LayerCost* member : members)
        mean += member->*time / static_cast<double>(members.size());
      for (LayerCost* member : members) member->*time = mean;
    }
  }
}

}  // namespace pipewright
