#pragma once

#include <memory>
#include <optional>

#include "pipewright/nn/loss.h"

namespace pipewright::app {

/// The area under the ROC curve of what passes a loss, in training and in evaluation: no forward is
/// run for it. Any thread may call the watched loss. Of several processes the one with the last
/// stage alone sees something.
class AreaMeter {
 public:
  AreaMeter();

  /// The same loss; outputs[0] are scores, targets[0] 0 and 1.
  Loss watch(Loss loss) const;

  /// Of all rows since the last call; nothing where there were none, or all of one kind.
  std::optional<double> take();

 private:
  struct Seen;
  std::shared_ptr<Seen> seen_;
};

}  // namespace pipewright::app
