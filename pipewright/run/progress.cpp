#include "pipewright/run/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace pipewright {
namespace {

constexpr double kSmoothing = 0.9;
constexpr int kLeastBar = 8;
constexpr int kMostBar = 40;

/// What one more value does to a mean; the first is the mean.
double smoothed(double mean, double value, bool first) {
  if (first || !std::isfinite(mean)) return value;
  return kSmoothing * mean + (1 - kSmoothing) * value;
}

std::string bar(double share, int columns, bool unicode) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * columns);
  std::string out;
  for (int i = 0; i < columns; ++i) {
    if (unicode) {
      out += i < full ? "━" : "─";
    } else {
      out += i < full ? '=' : '.';
    }
  }
  return out;
}

/// Three digits that matter, and none of a whole number's thrown away.
std::string rate_text(double rate) {
  const int decimals = rate >= 100 ? 0 : rate >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} samples/s", rate, decimals);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(std::clamp(seconds, 0.0, 1e15)));
  const std::int64_t days = whole / 86400;
  const std::int64_t hours = whole / 3600 % 24;
  const std::int64_t minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{} day{} {}:{:02}", days, days == 1 ? "" : "s", hours, minutes);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

Progress::Progress(ProgressOptions options, Clock clock, Width width, Sink sink)
    : options_(options),
      clock_(std::move(clock)),
      width_(std::move(width)),
      sink_(std::move(sink)),
      done_(options.first_step),
      last_step_at_(clock_()) {}

std::string Progress::time_left() const {
  const auto left = static_cast<double>(std::max<std::int64_t>(0, options_.num_steps - done_));
  return format_duration(step_seconds_ * left);
}

std::string Progress::loss_text() const {
  return fmt::format("loss {:.4f}{}", figures_.loss,
                     figures_.auc ? fmt::format("  auc {:.4f}", *figures_.auc) : "");
}

std::string Progress::plain_line() const {
  return fmt::format("step {:>{}}/{}  {}  {}  bubble {:.1f}%  {} left", done_,
                     fmt::formatted_size("{}", options_.num_steps), options_.num_steps, loss_text(),
                     rate_text(rate_), 100 * bubble_, time_left());
}

std::string Progress::bar_line(int width) const {
  const std::string head = fmt::format("step {}/{} ", done_, options_.num_steps);
  // In the order in which they are given up, the last first.
  const std::array<std::string, 4> figures = {
      fmt::format(" {}", loss_text()), fmt::format("  {} left", time_left()),
      fmt::format("  {}", rate_text(rate_)), fmt::format("  bubble {:.1f}%", 100 * bubble_)};
  const std::array<std::size_t, 4> order = {0, 2, 3, 1};  // as they stand on the line
  std::size_t shown = figures.size();
  const auto room = [&] {
    std::size_t used = head.size();
    for (std::size_t i = 0; i < shown; ++i) used += figures[i].size();
    return width - static_cast<int>(used);
  };
  while (shown > 0 && room() < kLeastBar) --shown;
  if (room() < 0) return head.substr(0, static_cast<std::size_t>(std::max(0, width)));
  const double share = static_cast<double>(done_) /
                       static_cast<double>(std::max<std::int64_t>(1, options_.num_steps));
  std::string line = head + bar(share, std::min(kMostBar, room()), options_.unicode);
  for (const std::size_t i : order) {
    if (i < shown) line += figures[i];
  }
  return line;
}

bool Progress::is_due(double now) const {
  if (!shown_ || done_ >= options_.num_steps) return true;
  if (options_.terminal) return now - last_shown_at_ >= options_.least_interval;
  const std::int64_t every = std::max<std::int64_t>(
      1, (options_.num_steps - options_.first_step) / std::max(1, options_.lines));
  return (done_ - options_.first_step) % every == 0;
}

void Progress::step(std::int64_t done, const ProgressFigures& figures) {
  const double now = clock_();
  const std::int64_t more = std::max<std::int64_t>(1, done - done_);
  const bool first = done_ == options_.first_step;
  step_seconds_ = smoothed(step_seconds_, (now - last_step_at_) / static_cast<double>(more), first);
  rate_ = smoothed(rate_, figures.samples_per_second, first);
  bubble_ = smoothed(bubble_, figures.bubble, first);
  figures_ = figures;
  done_ = done;
  last_step_at_ = now;
  if (!is_due(now)) return;
  shown_ = true;
  last_shown_at_ = now;
  if (options_.terminal) {
    // A bar in the last column would make some terminals begin another line.
    sink_(fmt::format("\r\033[K{}", bar_line(width_() - 1)));
    on_line_ = true;
  } else {
    sink_(plain_line() + "\n");
  }
}

void Progress::note(std::string_view line) {
  if (!options_.terminal) {
    sink_(fmt::format("{}\n", line));
    return;
  }
  sink_(fmt::format("\r\033[K{}\n{}", line, on_line_ ? bar_line(width_() - 1) : ""));
}

void Progress::finish() {
  if (std::exchange(on_line_, false)) sink_(fmt::format("\r\033[K{}\n", bar_line(width_() - 1)));
}

}  // namespace pipewright
