#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace pipewright {

/// What is shown of a step.
struct ProgressFigures {
  double loss = 0;
  double samples_per_second = 0;
  double bubble = 0;
  std::optional<double> auc = {};  // area under the ROC curve
};

struct ProgressOptions {
  std::int64_t first_step = 0;  // done before, by another session
  std::int64_t num_steps = 1;   // in all
  bool terminal = false;        // one line, written over and over; else lines, about `lines` in all
  bool unicode = true;          // the bar is of lines, else of ASCII
  int lines = 20;
  double least_interval = 0.1;  // seconds between two drawings on a terminal
};

/// How a training goes. On a terminal:
///
///     step 340/1000 ━━━━━━━━━━━━━━────────────────────────── loss 2.134  512 samples/s  0:41 left
///
/// and elsewhere a line now and then. A narrow terminal gets a shorter bar, then fewer figures; a
/// line is never longer than the terminal is wide. Not for several threads at once.
class Progress {
 public:
  using Clock = std::function<double()>;  // seconds, never backwards
  using Width = std::function<int()>;     // columns of the terminal now; asked before every line
  using Sink = std::function<void(std::string_view)>;

  Progress(ProgressOptions options, Clock clock, Width width, Sink sink);

  /// After a step: the number done.
  void step(std::int64_t done, const ProgressFigures& figures);

  /// A line that stays, above the bar: a checkpoint was saved, a validation made.
  void note(std::string_view line);

  /// Leaves the bar as it stands and ends its line. No more calls follow.
  void finish();

 private:
  std::string bar_line(int width) const;
  std::string plain_line() const;
  std::string loss_text() const;
  std::string time_left() const;
  bool is_due(double now) const;

  ProgressOptions options_;
  Clock clock_;
  Width width_;
  Sink sink_;
  std::int64_t done_;
  ProgressFigures figures_;
  double bubble_ = 0;        // smoothed: single steps differ much
  double rate_ = 0;          // the same
  double step_seconds_ = 0;  // the same
  double last_step_at_;
  double last_shown_at_ = 0;
  bool shown_ = false;    // some line was
  bool on_line_ = false;  // the cursor stands behind a bar
};

/// `0:41`, `12:05`, `3:00:12`, `2 days 3:00`.
std::string format_duration(double seconds);

}  // namespace pipewright
