#include "pipewright/sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/ir/walk.h"
#include "pipewright/sim/held_versions.h"
#include "pipewright/sim/steady.h"

namespace pipewright {
namespace {

/// What a rank holds, followed instruction by instruction.
struct Memory {
  double bytes = 0;
  double peak_bytes = 0;
  int in_flight = 0;
  int peak_in_flight = 0;
  double peak_version_bytes = 0;

  void hold(double more) {
    bytes += more;
    touch(0);
  }
  void touch(double more) { peak_bytes = std::max(peak_bytes, bytes + more); }
};

/// When an input comes to its stage, and since when it was on the link.
struct Arrivals {
  std::vector<double> at;    // by cell()
  std::vector<double> from;  // the same; empty where links cost nothing
};

class Simulator {
 public:
  Simulator(const Program& program, const StepCosts& costs, SimulateOptions options)
      : program_(program),
        costs_(costs),
        options_(options),
        lowered_(program.is_lowered()),
        asynchronous_(program.is_asynchronous()),
        free_at_(program.ranks.size()),
        memory_(program.ranks.size()),
        window_(program) {
    if (costs.stages.size() != program.placement.size()) {
      throw InvalidArgument("simulate",
                            fmt::format("costs of {} stages do not fit a program of {} stages",
                                        costs.stages.size(), program.placement.size()));
    }
    for (std::size_t stage = 0; stage < costs.stages.size(); ++stage)
      memory_[static_cast<std::size_t>(program.placement[stage])].hold(
          costs.stages[stage].static_bytes);
    weight_bytes_.resize(program.ranks.size());
    for (std::size_t stage = 0; stage < costs.stages.size(); ++stage)
      weight_bytes_[static_cast<std::size_t>(program.placement[stage])] +=
          costs.stages[stage].weight_bytes;
    result_.times = StepTimes(program.ranks.size());
    if (options.as_in != nullptr) take_durations(*options.as_in);
    if (options.record_timeline) prepare_timeline();
  }

  Simulation run() {
    // The walk checks the sizes before anything is reserved for them.
    Walk walk(program_, Sends::kReturnAtOnce, WalkOrder::kRankByRank);
    prepare_arrivals();
    versions_.emplace(program_);  // as sizes are checked
    hold_carried();
    while (const auto visit = walk.next()) {
      step_ = walk.position(visit->rank) - 1;
      take(visit->instruction, visit->rank);
    }
    if (!walk.finished()) {
      throw ScheduleError("simulate", "the program cannot run to its end; validate() says why");
    }
    const double chunks = std::max(program_.num_chunks(), 1);
    for (const Memory& memory : memory_) {
      result_.peak_in_flight.push_back(memory.peak_in_flight / chunks);
      result_.peak_bytes.push_back(memory.peak_bytes);
    }
    if (asynchronous_) fill_asynchronous();
    return std::move(result_);
  }

 private:
  void prepare_timeline() {
    Timeline& timeline = result_.timeline;
    timeline.name = program_.schedule;
    timeline.ranks.resize(program_.ranks.size());
    timeline.memory.resize(program_.ranks.size());
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      const auto& list = program_.ranks[rank];
      const auto messages = std::count_if(list.begin(), list.end(), [](Instruction i) {
        return is_send(i.kind()) || is_recv(i.kind());
      });
      timeline.ranks[rank].reserve(list.size() - static_cast<std::size_t>(messages));
    }
  }

  void prepare_arrivals() {
    const std::size_t cells =
        program_.placement.size() * static_cast<std::size_t>(program_.num_micro_batches);
    const bool links = costs_.link.latency > 0 || costs_.link.time > 0 ||
                       std::any_of(costs_.stages.begin(), costs_.stages.end(),
                                   [](const StageCost& stage) { return stage.link_time > 0; });
    for (Arrivals* arrivals : {&forward_, &backward_}) {
      arrivals->at.resize(cells);
      if (links) arrivals->from.resize(cells);
    }
    for (const auto& list : program_.ranks) {
      for (const Instruction i : list) {
        if (i.kind() != Kind::kRecompute) continue;
        recomputed_.resize(cells);
        recomputed_[cell(i.stage(), i.micro_batch())] = 1;
      }
    }
    // A link a direction between two ranks, shared by all boundaries that pass it.
    std::map<std::pair<int, int>, std::size_t> ids;
    const auto link = [&](int from, int to) {
      return ids.try_emplace({from, to}, ids.size()).first->second;
    };
    for (std::size_t stage = 0; stage + 1 < program_.placement.size(); ++stage) {
      const int low = program_.placement[stage];
      const int high = program_.placement[stage + 1];
      links_.push_back({link(low, high), link(high, low), low != high});
    }
    link_free_at_.resize(ids.size());
  }

  /// What is under way where the Program begins: activations, and versions of the weights.
  void hold_carried() {
    for (std::size_t stage = 0; stage < program_.carried.backwards.size(); ++stage) {
      Memory& memory = memory_[static_cast<std::size_t>(program_.placement[stage])];
      for (int m = program_.carried.backwards[stage]; m < program_.carried.micro_batches; ++m) {
        memory.peak_in_flight = std::max(memory.peak_in_flight, ++memory.in_flight);
        memory.hold(held_after_forward(static_cast<int>(stage), m));
      }
    }
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      hold_versions(rank, versions_->held(rank) - 1);
    }
  }

  /// So many more versions (or fewer) than before.
  void hold_versions(std::size_t rank, int more) {
    if (more == 0) return;
    Memory& memory = memory_[rank];
    memory.hold(more * weight_bytes_[rank]);
    memory.peak_version_bytes =
        std::max(memory.peak_version_bytes, (versions_->held(rank) - 1) * weight_bytes_[rank]);
  }

  void fill_asynchronous() {
    AsynchronousFigures& figures = result_.asynchronous.emplace();
    figures.is_steady = window_.exists();
    figures.steady = figures.is_steady ? window_.times() : result_.times;
    figures.micro_batches =
        figures.is_steady ? window_.num_micro_batches() : program_.num_micro_batches;
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      figures.versions.push_back(versions_->most_held(rank));
      figures.version_bytes.push_back(memory_[rank].peak_version_bytes);
      figures.delay.push_back(versions_->delay(rank));
    }
  }

  double held_after_forward(int stage, int micro_batch) const {
    const StageCost& cost = costs_.stages[static_cast<std::size_t>(stage)];
    const bool dropped = !recomputed_.empty() && recomputed_[cell(stage, micro_batch)] != 0;
    return dropped ? cost.boundary_bytes : cost.activation_bytes;
  }

  std::size_t cell(int stage, int micro_batch) const {  // as in Walk: micro-batch by micro-batch
    return static_cast<std::size_t>(micro_batch) * program_.placement.size() +
           static_cast<std::size_t>(stage);
  }

  void take(Instruction i, std::size_t rank) {
    const Kind kind = i.kind();
    if (is_recv(kind)) return;  // delays what uses it, not the rank
    if (kind == Kind::kSendForward) return send_forward(i, free_at_[rank]);
    if (kind == Kind::kSendBackward) return send_backward(i, free_at_[rank]);
    const Span span = place(i, rank);
    free_at_[rank] = span.end;
    result_.times.add(rank, span);
    if (asynchronous_) window_.add(rank, span);
    account(i, rank, span);
    if (options_.record_timeline) result_.timeline.ranks[rank].push_back(span);
    // Where the next stage is on this rank, or the Program has no sends, the result goes on by
    // itself.
    if (kind == Kind::kForward && i.stage() + 1 < program_.num_stages()) {
      if (!lowered_ || !link_after(i.stage()).crosses) send_forward(i, span.end);
    }
    if ((kind == Kind::kBackward || kind == Kind::kBackwardInput) && i.stage() > 0) {
      if (!lowered_ || !link_after(i.stage() - 1).crosses) send_backward(i, span.end);
    }
  }

  Span place(Instruction i, std::size_t rank) const {
    Span span;
    span.kind = i.kind();
    span.stage = i.stage();
    span.micro_batch = i.micro_batch();
    span.version = program_.version(rank, step_);
    span.start = free_at_[rank];
    const bool gradient = i.kind() == Kind::kBackward || i.kind() == Kind::kBackwardInput;
    const bool needs_input = (i.kind() == Kind::kForward && i.stage() > 0) ||
                             (gradient && i.stage() + 1 < program_.num_stages());
    if (needs_input) {
      const Arrivals& input = gradient ? backward_ : forward_;
      const std::size_t at = cell(i.stage(), i.micro_batch());
      span.start = std::max(span.start, input.at[at]);
      if (!input.from.empty()) {
        span.link_wait = std::max(0.0, span.start - std::max(free_at_[rank], input.from[at]));
      }
    }
    span.end = span.start + duration(i);
    return span;
  }

  void take_durations(const Timeline& timeline) {
    for (const auto& spans : timeline.ranks) {
      for (const Span& span : spans)
        durations_[{span.kind, span.stage, span.micro_batch}] = span.duration();
    }
  }

  double duration(Instruction i) const {
    if (!durations_.empty()) {
      const auto found = durations_.find({i.kind(), i.stage(), i.micro_batch()});
      if (found != durations_.end()) return found->second;
    }
    const StageCost& cost = costs_.stages[static_cast<std::size_t>(i.stage())];
    switch (i.kind()) {
      case Kind::kForward: return cost.forward;
      case Kind::kBackward: return cost.backward;
      case Kind::kBackwardInput: return cost.backward_input;
      case Kind::kBackwardWeight: return cost.backward_weight;
      case Kind::kRecompute: return cost.recompute;
      case Kind::kReduce: return cost.reduce;
      case Kind::kStep: return cost.step;
      default: return 0;
    }
  }

  /// What the instruction makes the rank hold from its start, and let go at its end.
  void account(Instruction i, std::size_t rank, const Span& span) {
    const StageCost& cost = costs_.stages[static_cast<std::size_t>(i.stage())];
    Memory& memory = memory_[rank];
    const double before = memory.bytes;
    double released = 0;
    const int more_versions = asynchronous_ ? versions_->take(rank, step_) : 0;
    if (more_versions > 0) hold_versions(rank, more_versions);
    if (more_versions < 0) released -= more_versions * weight_bytes_[rank];
    switch (i.kind()) {
      case Kind::kForward:
        memory.peak_in_flight = std::max(memory.peak_in_flight, ++memory.in_flight);
        memory.hold(held_after_forward(i.stage(), i.micro_batch()));
        memory.touch(cost.forward_temp_bytes);
        if (program_.forward_only) released = cost.activation_bytes;
        break;
      case Kind::kRecompute:
        memory.hold(cost.activation_bytes - cost.boundary_bytes);
        memory.touch(cost.recompute_temp_bytes);
        break;
      case Kind::kBackward:
        memory.touch(cost.backward_temp_bytes);
        released += cost.activation_bytes;
        break;
      case Kind::kBackwardInput:
        memory.touch(cost.backward_temp_bytes);
        released = cost.activation_bytes - cost.weight_half_bytes;
        break;
      case Kind::kBackwardWeight:
        memory.touch(cost.weight_temp_bytes);
        released = cost.weight_half_bytes;
        break;
      default: break;
    }
    if (i.kind() == Kind::kBackward || i.kind() == Kind::kBackwardInput || program_.forward_only) {
      --memory.in_flight;
    }
    if (options_.record_timeline && memory.bytes != before) {
      result_.timeline.memory[rank].push_back({span.start, memory.bytes});
    }
    memory.bytes -= released;
    if (options_.record_timeline && released != 0) {
      result_.timeline.memory[rank].push_back({span.end, memory.bytes});
    }
  }

  struct Boundary {
    std::size_t forward_link;
    std::size_t backward_link;
    bool crosses;
  };
  const Boundary& link_after(int stage) const { return links_[static_cast<std::size_t>(stage)]; }

  void send_forward(Instruction i, double ready) {
    const Boundary& boundary = link_after(i.stage());
    deliver(i.stage(), boundary.forward_link, &forward_, cell(i.stage() + 1, i.micro_batch()),
            ready);
  }

  void send_backward(Instruction i, double ready) {
    const Boundary& boundary = link_after(i.stage() - 1);
    deliver(i.stage() - 1, boundary.backward_link, &backward_, cell(i.stage() - 1, i.micro_batch()),
            ready);
  }

  void deliver(int boundary, std::size_t link, Arrivals* arrivals, std::size_t to, double ready) {
    double arrival = ready;
    if (link_after(boundary).crosses) {
      double& free_at = link_free_at_[link];
      free_at = std::max(free_at, ready) + costs_.link.time +
                costs_.stages[static_cast<std::size_t>(boundary)].link_time;
      arrival = free_at + costs_.link.latency;
    }
    arrivals->at[to] = arrival;
    if (!arrivals->from.empty()) arrivals->from[to] = ready;
  }

  const Program& program_;
  const StepCosts& costs_;
  SimulateOptions options_;
  std::map<std::tuple<Kind, int, int>, double> durations_;  // by kind, stage and micro-batch
  bool lowered_;
  bool asynchronous_;
  std::vector<double> free_at_;  // by rank
  std::vector<Memory> memory_;   // by rank
  Arrivals forward_;
  Arrivals backward_;
  std::vector<char> recomputed_;  // by cell(); empty where nothing is
  std::vector<Boundary> links_;   // by boundary
  std::vector<double> link_free_at_;
  std::vector<double> weight_bytes_;  // by rank, of one version
  std::optional<HeldVersions> versions_;
  SteadyWindow window_;
  std::size_t step_ = 0;  // of the instruction at hand in its list
  Simulation result_;
};

}  // namespace

Simulation simulate(const Program& program, const StepCosts& costs, SimulateOptions options) {
  return Simulator(program, costs, options).run();
}

}  // namespace pipewright
