#include "pipewright/ir/check_versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "pipewright/ir/reject.h"

namespace pipewright {
namespace {

/// An update of one stage: after which backward, and which version it makes.
struct Update {
  int version = 0;
  Place place;
};

/// What is known of a stage while its rank's list is read.
struct StageVersions {
  int newest = 0;
  int last_used = 0;     // by the newest forward read so far
  int last_carried = 0;  // by the newest micro-batch of those that were under way before
  std::optional<int> first_forward;     // the version that the first forward used
  std::map<int, int> under_way;         // micro-batch: the version that its backward must use
  std::optional<int> last_backward;     // micro-batch, since the last update
  std::map<int, Place> backwards;       // micro-batch: where it stands
  std::map<int, Update> updates;        // by the micro-batch whose backward completes it
  std::optional<Place> waiting_reduce;  // without its STEP yet
};

class VersionCheck {
 public:
  explicit VersionCheck(const Program& program)
      : program_(program), stages_(static_cast<std::size_t>(program.num_stages())) {}

  void check() {
    find_starts();
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      for (std::size_t step = 0; step < program_.ranks[rank].size(); ++step) take({rank, step});
    }
    check_reduces();
    check_updates();
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) check_kept(stage);
  }

 private:
  Instruction at(Place place) const { return program_.ranks[place.rank][place.step]; }
  int version(Place place) const { return program_.version(place.rank, place.step); }
  std::string text(Place place) const { return to_text(program_, place.rank, place.step); }
  StageVersions& stage_of(Place place) {
    return stages_[static_cast<std::size_t>(at(place).stage())];
  }
  bool begins_empty() const {
    return program_.carried.micro_batches == 0 && program_.num_stages() > 1;
  }

  /// The version that each stage has at the start: one less than its first STEP makes. A stage
  /// without one has that of the others where nothing is under way, else what it uses and keeps
  /// tells.
  void find_starts() {
    std::vector<std::optional<int>> first(stages_.size());
    std::vector<int> most_used;
    for (const int rank : program_.placement) {
      most_used.push_back(std::max(0, program_.keeps[static_cast<std::size_t>(rank)]));
    }
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      for (std::size_t step = 0; step < program_.ranks[rank].size(); ++step) {
        const Instruction i = program_.ranks[rank][step];
        const auto stage = static_cast<std::size_t>(i.stage());
        const int used = program_.version(rank, step);
        if (is_once_a_step(i.kind())) check_makes_one({rank, step});
        if (i.kind() == Kind::kStep && !first[stage]) first[stage] = used - 1;
        if (is_compute(i.kind())) most_used[stage] = std::max(most_used[stage], used);
      }
    }
    const auto known = std::find_if(first.begin(), first.end(), [](const auto& f) { return f; });
    const bool same = begins_empty() && known != first.end();
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      stages_[stage].newest = first[stage].value_or(same ? **known : most_used[stage]);
      if (same && first[stage]) check_same_start(stage, **known);
    }
    start_ = same ? *known : std::nullopt;
  }

  void check_makes_one(Place place) {
    if (version(place) >= 1) return;
    reject(program_, place,
           fmt::format("{} makes no version of the weights; write it as in {}{}@1, of the first "
                       "update of a run",
                       text(place), at(place).stage(), kind_name(at(place).kind())));
  }

  void check_same_start(std::size_t stage, int start) {
    if (stages_[stage].newest == start) return;
    const Instruction step(Kind::kStep, Stage{static_cast<int>(stage)});
    const Place place = find(program_, step).value_or(Place{});
    reject(program_, place,
           fmt::format("{} must make version {}, as the first STEP of the other stages does: where "
                       "nothing is under way, all have the same version",
                       text(place), start + 1));
  }

  void take(Place place) {
    switch (at(place).kind()) {
      case Kind::kForward: return take_forward(place);
      case Kind::kRecompute:
      case Kind::kBackward: return take_backward(place);
      case Kind::kBackwardInput:
      case Kind::kBackwardWeight:
        reject(program_, place,
               fmt::format("{} is half a backward; with versions of the weights, write B",
                           text(place)));
      case Kind::kReduce: return take_reduce(place);
      case Kind::kStep: return take_step(place);
      default:
        if (version(place) < 0) return;
        reject(program_, place,
               fmt::format("{} is a message and uses no version of the weights", text(place)));
    }
  }

  /// What holds of every use: a version that is there.
  void check_use(Place place) {
    const StageVersions& stage = stage_of(place);
    const int used = version(place);
    if (used < 0) {
      reject(program_, place,
             fmt::format("{} has no version of the weights; write it as in {}@{}", text(place),
                         text(place), stage.newest));
    }
    if (used > stage.newest) {
      reject(
          program_, place,
          fmt::format("{} uses a version that is not made yet: the newest of stage {} is {} here",
                      text(place), at(place).stage(), stage.newest));
    }
    if (start_ && used < *start_) {
      reject(program_, place,
             fmt::format("{} uses a version that is no longer kept: nothing is under way at the "
                         "start, and version {} is all there is",
                         text(place), *start_));
    }
  }

  /// Versions go up from micro-batch to micro-batch; forwards come in their order.
  void check_not_older(Place place, int* last) {
    if (version(place) < *last) {
      reject(program_, place,
             fmt::format("{} uses a version that is no longer kept: the micro-batch before it used "
                         "{}",
                         text(place), *last));
    }
    *last = version(place);
  }

  void take_forward(Place place) {
    check_use(place);
    check_not_older(place, &stage_of(place).last_used);
    StageVersions& stage = stage_of(place);
    if (!stage.first_forward) stage.first_forward = version(place);
    stage.under_way[at(place).micro_batch()] = version(place);
  }

  /// Of a micro-batch that was under way before the Program: its forward is not seen, but it used
  /// no newer version than the forwards here.
  void check_carried(Place place) {
    StageVersions& stage = stage_of(place);
    check_use(place);
    if (stage.first_forward && version(place) > *stage.first_forward) {
      reject(program_, place,
             fmt::format("{} uses a newer version than the forwards of later micro-batches, which "
                         "begin with {}",
                         text(place), *stage.first_forward));
    }
    check_not_older(place, &stage.last_carried);
    stage.under_way[at(place).micro_batch()] = version(place);
  }

  /// R and B. The first of the two tells the version of a micro-batch that was under way before.
  void take_backward(Place place) {
    StageVersions& stage = stage_of(place);
    const int micro_batch = at(place).micro_batch();
    const bool carried = micro_batch < program_.carried.micro_batches;
    const auto forward = stage.under_way.find(micro_batch);
    if (forward == stage.under_way.end()) {
      check_carried(place);
    } else if (forward->second != version(place)) {
      reject(program_, place,
             fmt::format("{} must use version {}, as {} does", text(place), forward->second,
                         carried ? fmt::format("{}R{}", at(place).stage(), micro_batch)
                                 : fmt::format("{}F{}", at(place).stage(), micro_batch)));
    }
    if (at(place).kind() == Kind::kRecompute) return;
    if (stage.waiting_reduce) {
      reject(program_, place,
             fmt::format("{} comes between the stage's REDUCE and its STEP", text(place)));
    }
    stage.under_way.erase(micro_batch);
    stage.last_backward = micro_batch;
    stage.backwards[micro_batch] = place;
  }

  void check_makes_next(Place place) {
    const StageVersions& stage = stage_of(place);
    if (version(place) != stage.newest + 1) {
      reject(program_, place,
             fmt::format("{} must make version {}: the newest of stage {} is {} here", text(place),
                         stage.newest + 1, at(place).stage(), stage.newest));
    }
    if (stage.last_backward) return;
    reject(program_, place,
           fmt::format("{} has no gradients: the stage has done no backward since its last update",
                       text(place)));
  }

  void take_reduce(Place place) {
    check_makes_next(place);
    StageVersions& stage = stage_of(place);
    if (stage.waiting_reduce) {
      reject(program_, place,
             fmt::format("{} is a duplicate of {}", text(place), words_for(*stage.waiting_reduce)));
    }
    stage.waiting_reduce = place;
    any_reduce_ = true;
  }

  void take_step(Place place) {
    check_makes_next(place);
    StageVersions& stage = stage_of(place);
    if (!stage.waiting_reduce && !unreduced_) unreduced_ = place;
    stage.updates[*stage.last_backward] = {version(place), place};
    stage.newest = version(place);
    stage.last_backward.reset();
    stage.waiting_reduce.reset();
  }

  void check_reduces() {
    if (any_reduce_ && unreduced_) {
      reject(program_, *unreduced_,
             fmt::format("{} comes without a REDUCE, while other updates have theirs",
                         text(*unreduced_)));
    }
    for (const StageVersions& stage : stages_) {
      if (!stage.waiting_reduce) continue;
      reject(program_, *stage.waiting_reduce,
             fmt::format("{} has no STEP after it", text(*stage.waiting_reduce)));
    }
  }

  /// An update is one of all stages, after the same micro-batch.
  void check_updates() {
    std::map<int, std::pair<int, int>> all;  // micro-batch: version and a stage that makes it
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      for (const auto& [micro_batch, update] : stages_[s].updates) {
        const auto& [version, first] =
            all.try_emplace(micro_batch, update.version, static_cast<int>(s)).first->second;
        if (version == update.version) continue;
        reject(program_, update.place,
               fmt::format("{} must make version {}, as stage {} does after micro-batch {}",
                           text(update.place), version, first, micro_batch));
      }
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      for (const auto& [micro_batch, update] : all) check_has_update(s, micro_batch, update);
    }
  }

  void check_has_update(std::size_t stage, int micro_batch, std::pair<int, int> update) {
    const StageVersions& own = stages_[stage];
    const auto backward = own.backwards.find(micro_batch);
    if (backward == own.backwards.end() || own.updates.contains(micro_batch)) return;
    reject(program_, {backward->second.rank, backward->second.step + 1},
           fmt::format("{}STEP@{} is missing after {}: stage {} updates there", stage, update.first,
                       text(backward->second), update.second));
  }

  /// What is needed after the Program must be among what is kept.
  void check_kept(std::size_t stage) {
    const auto rank = static_cast<std::size_t>(program_.placement[stage]);
    const int keeps = program_.keeps[rank];
    const StageVersions& own = stages_[stage];
    const Place end{rank, program_.ranks[rank].size()};
    if (keeps < 0 || keeps > own.newest) {
      reject(program_, end,
             fmt::format("rank {} keeps versions from {} on, but the newest of stage {} is {}",
                         rank, keeps, stage, own.newest));
    }
    for (const auto& [micro_batch, version] : own.under_way) {
      if (version >= keeps) continue;
      reject(program_, end,
             fmt::format("rank {} keeps versions from {} on, but {}B{} is left and will use {}",
                         rank, keeps, stage, micro_batch, version));
    }
  }

  const Program& program_;
  std::vector<StageVersions> stages_;
  std::optional<int> start_;        // of all stages, where nothing is under way
  std::optional<Place> unreduced_;  // the first STEP without a REDUCE
  bool any_reduce_ = false;
};

}  // namespace

void check_program_versions(const Program& program) { VersionCheck(program).check(); }

}  // namespace pipewright
