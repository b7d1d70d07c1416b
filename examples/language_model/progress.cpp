#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace {

constexpr int kBarColumns = 16;
constexpr int kPlainLines = 20;
constexpr double kSmoothing = 0.9;

std::string bar(double done) {
  const int full = static_cast<int>(done * kBarColumns);
  return fmt::format("[{:=<{}}{:{}}]", "", full, "", kBarColumns - full);
}

std::string clock_text(double seconds) {
  const int whole = static_cast<int>(std::lround(seconds));
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(int first, int num_steps, double samples_a_step)
    : first_(first),
      num_steps_(num_steps),
      samples_a_step_(samples_a_step),
      step_(first),
      terminal_(isatty(STDOUT_FILENO) != 0) {}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

double Progress::samples_per_second() const {
  return samples_a_step_ * (step_ - first_) / seconds();
}

void Progress::show(double loss, double bubble) {
  ++step_;
  bubble_ = step_ == first_ + 1 ? bubble : kSmoothing * bubble_ + (1 - kSmoothing) * bubble;
  const bool last = step_ == num_steps_;
  const std::string figures = fmt::format("loss {:.3f}  {:.0f} samples/s  bubble {:4.1f}%", loss,
                                          samples_per_second(), 100 * bubble_);
  if (terminal_) {
    const double left = seconds() / (step_ - first_) * (num_steps_ - step_);
    fmt::print("\r\033[K{} {}/{}  {}  {} left{}", bar(1.0 * step_ / num_steps_), step_, num_steps_,
               figures, clock_text(left), last ? "\n" : "");
    std::fflush(stdout);
  } else if (step_ == first_ + 1 || last || step_ % std::max(1, num_steps_ / kPlainLines) == 0) {
    fmt::print("step {:>{}}/{}  {}\n", step_, fmt::formatted_size("{}", num_steps_), num_steps_,
               figures);
    std::fflush(stdout);
  }
}
