// The part of Training that checkpoints save and put back.

#include "pipewright/train/training.h"

namespace pipewright {

RunPosition Training::position() const {
  RunPosition position{num_steps_, num_updates_, num_merged_, grid_.replicas, strategy_.seed, {}};
  if (scaler_) position.scaler = scaler_->state();
  return position;
}

void Training::set_position(const RunPosition& position) {
  num_steps_ = position.num_steps;
  num_updates_ = position.num_updates;
  num_merged_ = position.num_merged;
  strategy_.seed = position.seed;
  if (scaler_ && position.scaler) scaler_->set_state(*position.scaler);
}

}  // namespace pipewright
