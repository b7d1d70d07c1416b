#include "pipewright/recompute/optimal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "pipewright/base/error.h"
#include "pipewright/recompute/coarse.h"
#include "pipewright/recompute/least_memory.h"

namespace pipewright {
namespace {

/// Longer chains are planned by runs of layers: with so few units as they could be planned with
/// layer by layer, rounding would cost more than that.
constexpr int kMostLayers = 240;

constexpr double kNever = std::numeric_limits<double>::infinity();

/// As std::min, by value: which the compiler turns into vector instructions.
inline double lesser(double a, double b) { return b < a ? b : a; }

/// The time of layers s..t when `used` units of the budget are taken, for all s, t, used. The input
/// of s is there and not counted; the gradient of t's output is counted.
class Table {
 public:
  Table(const Chain& chain, std::int64_t budget, std::int64_t unit)
      : chain_(chain),
        budget_(budget),
        unit_(unit),
        width_(static_cast<std::size_t>(budget / unit) + 1),
        forward_sum_(chain.layers.size() + 1),
        times_(pairs() * width_, kNever),
        saving_(times_),
        saving_after_(times_),
        keeping_(times_) {
    for (int l = 1; l <= chain.size(); ++l)
      forward_sum_[index(l)] = forward_sum_[index(l - 1)] + chain.layer(l).forward;
    // An entry needs those of shorter stretches with as much or more used. This order, of all that
    // allow it, finds most of them in the cache.
    constexpr std::size_t kBlock = 128;
    constexpr int kTile = 8;
    for (std::size_t to = width_; to > 0; to -= std::min(to, kBlock)) {
      const std::size_t from = to - std::min(to, kBlock);
      for (int tile = 1; tile <= chain.size(); tile += kTile) {
        const int last = std::min(tile + kTile - 1, chain.size());
        for (int s = last; s >= 1; --s) {
          for (int t = std::max(s, tile); t <= last; ++t) fill(s, t, from, to);
        }
      }
    }
  }

  std::size_t width() const { return width_; }
  double time(std::size_t used) const { return row_of(times_, 1, chain_.size())[used]; }

  std::vector<Operation> operations(std::size_t used) const {
    std::vector<Operation> result;
    write(1, chain_.size(), used, &result);
    return result;
  }

 private:
  static std::size_t index(int layer) { return static_cast<std::size_t>(layer); }
  std::size_t pairs() const { return chain_.layers.size() * (chain_.layers.size() + 1) / 2; }
  std::size_t row(int s, int t) const {
    return index(s - 1) * (2 * chain_.layers.size() - index(s - 2)) / 2 + index(t - s);
  }
  const double* row_of(const std::vector<double>& table, int s, int t) const {
    return table.data() + row(s, t) * width_;
  }
  double* row_of(std::vector<double>* table, int s, int t) const {
    return table->data() + row(s, t) * width_;
  }

  std::size_t units(std::int64_t bytes) const {
    return static_cast<std::size_t>((bytes + unit_ - 1) / unit_);
  }

  /// How many values of `used` leave room for `bytes` more.
  std::size_t room_for(std::int64_t bytes) const {
    if (bytes > budget_) return 0;
    return static_cast<std::size_t>((budget_ - bytes) / unit_) + 1;
  }

  /// The entries of s..t with `from` <= used < `to`.
  void fill(int s, int t, std::size_t from, std::size_t to) {
    fill_keep(s, t, from, to);
    fill_save(s, t, 0, from, to, row_of(&saving_, s, t));
    if (s > 1)
      fill_save(s, t, chain_.layer(s - 1).idle_bytes, from, to, row_of(&saving_after_, s, t));
    double* best = row_of(&times_, s, t);
    const double* keep = row_of(keeping_, s, t);
    const double* save = row_of(saving_, s, t);
    for (std::size_t used = from; used < to; ++used) best[used] = lesser(keep[used], save[used]);
  }

  void fill_keep(int s, int t, std::size_t from, std::size_t to) {
    if (s == t) return;
    double* best = row_of(&keeping_, s, t);
    const std::size_t room = std::min(to, room_for(need_of_keep(chain_, s, t)));
    for (int middle = s + 1; middle <= t; ++middle) {
      const std::size_t kept = units(chain_.layer(middle - 1).output_bytes);
      if (kept >= width_) continue;
      const double again = forward_between(s, middle);
      const double* later = row_of(times_, middle, t) + kept;
      const double* earlier = row_of(times_, s, middle - 1);
      const std::size_t end = std::min(room, width_ - kept);
      for (std::size_t used = from; used < end; ++used)
        best[used] = lesser(best[used], again + later[used] + earlier[used]);
    }
  }

  /// `idle_before`: of the layer before s, which was saved; there until s has run, and not in
  /// `used`.
  void fill_save(int s, int t, std::int64_t idle_before, std::size_t from, std::size_t to,
                 double* best) const {
    const ChainLayer& first = chain_.layer(s);
    const double own = first.forward + first.backward;
    const std::size_t forward = room_for(idle_before + need_of_save(chain_, s, t));
    const std::size_t room = std::min({to, forward, room_for(need_of_backward(chain_, s, true))});
    if (s == t) {
      for (std::size_t used = from; used < room; ++used) best[used] = own;
      return;
    }
    const std::size_t saved = units(first.saved_bytes);
    const double* keep = row_of(keeping_, s + 1, t);
    for (std::size_t used = from; used < room && used + saved < width_; ++used)
      best[used] = own + keep[used + saved];
    const std::size_t busy = units(first.saved_bytes - first.idle_bytes);
    const std::size_t busy_room =
        std::min({to, forward, room_for(need_of_backward(chain_, s, false))});
    const double* save = row_of(saving_after_, s + 1, t);
    for (std::size_t used = from; used < busy_room && used + busy < width_; ++used)
      best[used] = lesser(best[used], own + save[used + busy]);
  }

  /// The time of the forwards of s .. middle - 1.
  double forward_between(int s, int middle) const {
    return forward_sum_[index(middle - 1)] - forward_sum_[index(s - 1)];
  }

  /// Finds the choice again that gave the time, which is cheaper than to keep all choices.
  void write(int s, int t, std::size_t used, std::vector<Operation>* result) const {
    const double best = row_of(times_, s, t)[used];
    if (row_of(saving_, s, t)[used] == best) {
      write_save(s, t, best, used, result);
    } else {
      write_keep(s, t, used, result);
    }
  }

  void write_keep(int s, int t, std::size_t used, std::vector<Operation>* result) const {
    const double best = row_of(keeping_, s, t)[used];
    for (int middle = s + 1; middle <= t; ++middle) {
      const std::size_t kept = used + units(chain_.layer(middle - 1).output_bytes);
      if (kept >= width_) continue;
      if (forward_between(s, middle) + row_of(times_, middle, t)[kept] +
              row_of(times_, s, middle - 1)[used] !=
          best)
        continue;
      write_forwards(s, middle, result);
      write(middle, t, kept, result);
      write(s, middle - 1, used, result);
      return;
    }
    internal_check(false, "a finite time has a choice that gave it");
  }

  void write_save(int s, int t, double best, std::size_t used,
                  std::vector<Operation>* result) const {
    const ChainLayer& first = chain_.layer(s);
    const double own = first.forward + first.backward;
    result->push_back({LayerOp::kForwardSave, s});
    if (s < t) {
      const std::size_t saved = used + units(first.saved_bytes);
      const bool keeps = used < room_for(need_of_backward(chain_, s, true)) && saved < width_ &&
                         own + row_of(keeping_, s + 1, t)[saved] == best;
      if (keeps) {
        write_keep(s + 1, t, saved, result);
      } else {
        const std::size_t busy = used + units(first.saved_bytes - first.idle_bytes);
        write_save(s + 1, t, row_of(saving_after_, s + 1, t)[busy], busy, result);
      }
    }
    result->push_back({LayerOp::kBackward, s});
  }

  const Chain& chain_;
  std::int64_t budget_;
  std::int64_t unit_;
  std::size_t width_;                // values of `used`
  std::vector<double> forward_sum_;  // of layers 1..l
  // By s, by t, by used: the best of the ways to begin, and each of them.
  std::vector<double> times_;
  std::vector<double> saving_;
  std::vector<double> saving_after_;  // right after s - 1 was saved, whose idle bytes are not used
  std::vector<double> keeping_;
};

/// What a chain of that length is planned with in under a second, though the work grows with its
/// cube.
int default_units(int layers) {
  return static_cast<int>(std::clamp(300 * std::pow(200.0 / layers, 1.25), 16.0, 4000.0));
}

/// The greatest unit that all deductions are whole multiples of.
std::int64_t exact_unit(const Chain& chain) {
  std::int64_t unit = 0;
  for (const ChainLayer& layer : chain.layers)
    unit =
        std::gcd(std::gcd(unit, layer.idle_bytes), std::gcd(layer.output_bytes, layer.saved_bytes));
  return std::max<std::int64_t>(unit, 1);
}

/// How many bytes the deductions grow by when they are rounded up.
double rounding_loss(const Chain& chain, std::int64_t unit) {
  double loss = 0;
  for (const ChainLayer& layer : chain.layers) {
    for (const std::int64_t bytes : {layer.output_bytes, layer.saved_bytes})
      loss += static_cast<double>((unit - bytes % unit) % unit);
  }
  return loss;
}

/// Of the units that make at most `most_units` of the budget, one that the sizes fit well: half as
/// many units of the right size are better than twice as many that a frequent size just exceeds.
std::int64_t rounded_unit(const Chain& chain, std::int64_t budget, int most_units) {
  const std::int64_t smallest = (budget + most_units - 1) / most_units;
  std::int64_t best = smallest;
  double least = rounding_loss(chain, smallest);
  constexpr int kCandidates = 200;
  for (int i = 1; i <= kCandidates; ++i) {
    const std::int64_t unit = smallest + smallest * i / kCandidates;
    const double loss = rounding_loss(chain, unit);
    if (loss < least) {
      least = loss;
      best = unit;
    }
  }
  return best;
}

}  // namespace

namespace {

struct Unit {
  std::int64_t bytes = 1;
  bool exact = true;
};

Unit choose_unit(const Chain& chain, std::int64_t budget, int most_units) {
  if (most_units <= 0) most_units = default_units(chain.size());
  const std::int64_t exact = exact_unit(chain);
  if (budget / exact <= most_units) return {exact, true};
  return {rounded_unit(chain, budget, most_units), false};
}

void check_chain(const Chain& chain) {
  if (chain.layers.empty()) throw InvalidArgument("recompute", "the chain has no layers");
}

RecomputePlan make_plan(const Chain& chain, std::vector<Operation> operations, std::int64_t least,
                        const Unit& unit) {
  RecomputePlan plan;
  plan.feasible = true;
  plan.cost = run_operations(chain, operations);
  plan.operations = std::move(operations);
  plan.least_budget_bytes = least;
  plan.exact = unit.exact;
  plan.unit_bytes = unit.bytes;
  return plan;
}

}  // namespace

RecomputePlan optimal_recompute(const Chain& chain, std::int64_t budget_bytes, int most_units) {
  check_chain(chain);
  const LeastMemory least(chain);
  if (budget_bytes < least.bytes()) {
    RecomputePlan plan;
    plan.least_budget_bytes = least.bytes();
    return plan;
  }
  auto plans = recompute_frontier(chain, budget_bytes, most_units);
  // The fastest comes first. Rounding may leave too little where there is hardly enough: then it is
  // the plan of least memory.
  return std::move(plans.front());
}

namespace {

/// Plans of the chain, each as fast as some budget allows, fastest first.
std::vector<std::vector<Operation>> fastest_lists(const Chain& chain, std::int64_t budget_bytes,
                                                  const Unit& unit) {
  std::vector<std::vector<Operation>> lists;
  const Table table(chain, budget_bytes, unit.bytes);
  for (std::size_t used = 0; used < table.width() && table.time(used) < kNever; ++used) {
    const bool last = used + 1 == table.width();
    if (!last && table.time(used + 1) == table.time(used)) continue;  // as fast with less
    lists.push_back(table.operations(used));
  }
  return lists;
}

}  // namespace

std::vector<RecomputePlan> recompute_frontier(const Chain& chain, std::int64_t budget_bytes,
                                              int most_units) {
  check_chain(chain);
  const LeastMemory least(chain);
  std::vector<RecomputePlan> plans;
  if (budget_bytes < least.bytes()) return plans;
  const bool is_long = chain.size() > kMostLayers;
  const CoarseChain coarse = coarsen(chain, is_long ? kMostLayers : chain.size());
  const Chain& planned = is_long ? coarse.chain : chain;
  const std::int64_t budget = std::min(budget_bytes, most_needed(planned));
  Unit unit = choose_unit(planned, budget, most_units);
  if (is_long) unit.exact = false;
  for (auto& list : fastest_lists(planned, budget, unit)) {
    plans.push_back(
        make_plan(chain, is_long ? coarse.expand(list) : std::move(list), least.bytes(), unit));
  }
  plans.push_back(make_plan(chain, least.operations(), least.bytes(), unit));
  return plans;
}

std::int64_t least_budget(const Chain& chain) { return LeastMemory(chain).bytes(); }

}  // namespace pipewright
