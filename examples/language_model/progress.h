#pragma once

#include <chrono>

/// How a training goes: on a terminal one line that is written over and over, elsewhere about
/// twenty lines in all.
class Progress {
 public:
  /// `first`: steps that an earlier run did.
  Progress(int first, int num_steps, double samples_a_step);

  /// After a step: its loss, and the share of the ranks' time that was idle.
  void show(double loss, double bubble);

  /// Samples a second, over all steps so far.
  double samples_per_second() const;
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  int first_;
  int num_steps_;
  double samples_a_step_;
  int step_;
  double bubble_ = 0;  // smoothed: single steps differ much
  bool terminal_;
  Clock::time_point start_ = Clock::now();
};
