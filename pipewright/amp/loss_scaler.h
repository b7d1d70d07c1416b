#pragma once

namespace pipewright {

/// How the loss is scaled so that small gradients survive in 16 bits.
struct LossScaling {
  double init_scale = 32768;
  double growth = 2;           // the scale times this ...
  int growth_interval = 1000;  // ... after so many good steps in a row
  double backoff = 0.5;        // the scale times this ...
  int backoff_interval = 2;    // ... after so many overflows in a row
};

/// The scale of dynamic loss scaling, step by step.
class LossScaler {
 public:
  /// Throws InvalidArgument for options that make no sense.
  explicit LossScaler(const LossScaling& options);

  double scale() const { return state_.scale; }

  /// After every update, done or skipped. The scale stays within [1, the largest finite float].
  void update(bool overflow);

  /// What a checkpoint must hold.
  struct State {
    double scale = 1;
    int num_good = 0;  // in a row
    int num_bad = 0;   // in a row
  };
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  LossScaling options_;
  State state_;
};

}  // namespace pipewright
