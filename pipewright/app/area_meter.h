#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "pipewright/nn/loss.h"

namespace pipewright::app {

/// The area under the ROC curve of what passes a loss, in training and in evaluation: no forward is
/// run for it. Any thread may call the watched loss.
class AreaMeter {
 public:
  AreaMeter();

  /// The same loss; outputs[0] are scores, targets[0] 0 and 1.
  Loss watch(Loss loss) const;

  /// What the processes have seen, in all of them; of one process its own.
  using Gather = std::function<std::vector<nlohmann::json>(const nlohmann::json&)>;

  /// Of all rows since the last call, of all processes; nothing where there were none, or all of
  /// one kind.
  std::optional<double> take(const Gather& gather);
  /// Those rows do not count.
  void forget();

 private:
  struct Seen;
  std::pair<Tensors, Tensors> swap_out();

  std::shared_ptr<Seen> seen_;
};

}  // namespace pipewright::app
