#include "pipewright/ir/carried.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

class Shape {
 public:
  Shape(const Program& program, std::string_view who) : program_(program), who_(who) {}

  void check() const {
    if (program_.is_asynchronous()) {
      check_versions();
    } else {
      check_synchronous();
    }
    if (program_.num_micro_batches < program_.carried.micro_batches) {
      refuse(fmt::format("{} micro-batches are carried, but the program has {} in all",
                         program_.carried.micro_batches, program_.num_micro_batches));
    }
    check_backwards();
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw ScheduleError(who_, why); }

  void check_synchronous() const {
    if (program_.keeps.empty() && program_.carried == Carried{} && !program_.open) return;
    refuse(
        "a program without versions of the weights cannot carry micro-batches, keep versions or "
        "be open; such a program is a whole step");
  }

  void check_versions() const {
    if (program_.forward_only) refuse("a forward-only program has no versions of the weights");
    const std::size_t ranks = program_.ranks.size();
    if (program_.versions.size() != ranks) {
      refuse(fmt::format("{} lists of versions for {} ranks", program_.versions.size(), ranks));
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (program_.versions[rank].size() == program_.ranks[rank].size()) continue;
      refuse(fmt::format("rank {} has {} versions for {} instructions", rank,
                         program_.versions[rank].size(), program_.ranks[rank].size()));
    }
    if (program_.num_chunks() > 1) {
      refuse("with versions of the weights, a rank has one stage, and here one has several");
    }
    if (program_.keeps.size() != ranks) {
      refuse(fmt::format("{} versions to keep for {} ranks", program_.keeps.size(), ranks));
    }
  }

  void check_backwards() const {
    const Carried& carried = program_.carried;
    const std::size_t stages = carried.micro_batches > 0 ? program_.placement.size() : 0;
    if (carried.backwards.size() != stages) {
      refuse(
          fmt::format("{} micro-batches are carried with the backwards of {} stages; there must "
                      "be {}",
                      carried.micro_batches, carried.backwards.size(), stages));
    }
    if (carried.micro_batches == 0) return;
    // As many as schedules with a reserve have; more would take memory that no instruction asks
    // for.
    const int most = 2 * (program_.num_stages() - 1);
    if (carried.micro_batches < 0 || carried.micro_batches > most) {
      refuse(fmt::format("{} micro-batches cannot be carried over {} stages; at most {} can",
                         carried.micro_batches, stages, most));
    }
    if (carried.backwards.front() != 0 || carried.backwards.back() > carried.micro_batches ||
        !std::is_sorted(carried.backwards.begin(), carried.backwards.end())) {
      refuse(
          fmt::format("backwards {} of {} carried micro-batches: they must go up with the "
                      "stages, from 0 to no more than are carried",
                      fmt::join(carried.backwards, " "), carried.micro_batches));
    }
  }

  const Program& program_;
  std::string_view who_;
};

}  // namespace

void check_carried(const Program& program, std::string_view who) { Shape(program, who).check(); }

}  // namespace pipewright
