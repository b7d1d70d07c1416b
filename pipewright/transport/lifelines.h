#pragma once

#include <torch/torch.h>

#include <memory>
#include <thread>
#include <vector>

#include "pipewright/transport/world.h"

namespace pipewright {

/// Notices at once when a process is gone: the system closes its connections. From every other
/// process one message is awaited that says goodbye; a connection that breaks before it has come is
/// that of a process that was lost, and the run fails. Whoever waits for something else, a text in
/// the store say, is woken by that. (A process that is stopped keeps its connections: signs of life
/// are for those.)
class Lifelines {
 public:
  /// `group`: of all processes of the world, over Gloo. All of them make one.
  Lifelines(World* world, c10::intrusive_ptr<compat::ProcessGroup> group);
  /// Says goodbye where the run has not failed.
  ~Lifelines();
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;
  Lifelines(Lifelines&&) = delete;
  Lifelines& operator=(Lifelines&&) = delete;

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;
  struct Line {
    int process = 0;
    torch::Tensor buffer;
    Work work;
    std::thread thread;
  };

  void watch(const Line& line);
  void say_goodbye();

  World* world_;
  c10::intrusive_ptr<compat::ProcessGroup> group_;
  std::vector<std::unique_ptr<Line>> lines_;
};

/// A time that never comes, for waits that are ended otherwise.
inline constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365);

}  // namespace pipewright
