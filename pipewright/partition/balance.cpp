#include "pipewright/partition/balance.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>

#include "pipewright/base/error.h"

// A split is a path 0 = e_0 < e_1 < .. < e_S = N over the ends of stages, and an edge i -> j weighs
//
//     w(i, j) = (cost of layers i..j-1)^2 * A + (j - i)^2        (infinite above the bound)
//
// with A larger than any sum of squared layer counts. Squares make w Monge: crossing edges weigh no
// more than nested ones,
//
//     a <= b < c <= d:   w(a, c) + w(b, d) <= w(a, d) + w(b, c)
//
// and for such weights the least weight f(k) of a path of k edges is convex in k. So instead of
// paths of exactly S edges, take the lightest path of any length with a toll on each edge: the
// higher the toll, the fewer edges. f is whole, so a toll halfway between whole numbers leaves no
// tie between lengths. Below, all weights are doubled and tolls are odd.
//
// Where no toll gives S edges (f is straight there: equal layers, say), the paths for the tolls
// just above and just below, A with fewer edges and B with more, are lightest for the toll between
// them, and so is a path that follows B and changes over to A inside a nested pair of edges.

namespace pipewright {
namespace {

constexpr uint128 kInfinite = ~uint128{0};

using Path = std::vector<std::size_t>;  // the ends of stages, from 0 to the number of layers

class Balancer {
 public:
  Balancer(const WholeCosts& costs, uint128 bound)
      : num_layers_(costs.layers.size()),
        count_bits_(2 * static_cast<int>(std::bit_width(num_layers_))),
        sums_(prefix_sums(shrink(costs, std::uint64_t{1} << (60 - count_bits_ / 2)))),
        furthest_(num_layers_ + 1),
        best_(num_layers_ + 1),
        came_from_(num_layers_ + 1) {
    const std::vector<uint128> exact_sums = prefix_sums(costs.layers);
    std::size_t end = 0;
    for (std::size_t begin = 0; begin <= num_layers_; ++begin) {
      while (end < num_layers_ && exact_sums[end + 1] - exact_sums[begin] <= bound) ++end;
      furthest_[begin] = end;
    }
  }

  Path lightest_path_of(std::size_t num_edges) {
    // Tolls 2 * x + 1. A toll of 1/2 leaves every layer alone, for each cut saves at least 2. One
    // of the whole weight of a shortest path leaves a shortest path.
    uint128 low = 0;
    Path long_path = lightest_path(1);
    uint128 high = weight_of_shortest_path() / 2;
    Path short_path = lightest_path(2 * high + 1);
    while (long_path.size() != num_edges + 1 && short_path.size() != num_edges + 1 &&
           high - low > 1) {
      const uint128 middle = low + (high - low) / 2;
      Path path = lightest_path(2 * middle + 1);
      if (path.size() > num_edges + 1) {
        low = middle;
        long_path = std::move(path);
      } else {
        high = middle;
        short_path = std::move(path);
      }
    }
    if (long_path.size() == num_edges + 1) return long_path;
    if (short_path.size() == num_edges + 1) return short_path;
    return change_over(long_path, short_path, num_edges);
  }

 private:
  /// A candidate for the last edge's begin, and the first end for which it is the best.
  struct Candidate {
    std::size_t begin;
    std::size_t first_end;
  };

  uint128 doubled_weight(std::size_t begin, std::size_t end) const {
    const uint128 cost = sums_[end] - sums_[begin];
    const uint128 count = end - begin;
    return ((cost * cost << count_bits_) + count * count) << 1;
  }

  uint128 weight_through(std::size_t begin, std::size_t end) const {
    return end > furthest_[begin] ? kInfinite : best_[begin] + doubled_weight(begin, end);
  }

  /// Since w is Monge, a later begin that is no worse at one end is no worse at all ends after it.
  bool later_wins(const Candidate& later, const Candidate& earlier, std::size_t end) const {
    return weight_through(later.begin, end) <= weight_through(earlier.begin, end);
  }

  Path lightest_path(uint128 toll) {
    candidates_.assign(1, {0, 1});
    for (std::size_t end = 1; end <= num_layers_; ++end) {
      while (candidates_.size() > 1 && candidates_[1].first_end <= end) candidates_.pop_front();
      const std::size_t begin = candidates_.front().begin;
      best_[end] = weight_through(begin, end) + toll;
      came_from_[end] = begin;
      if (end < num_layers_) add_candidate(end);
    }
    Path path = {num_layers_};
    while (path.back() != 0) path.push_back(came_from_[path.back()]);
    std::reverse(path.begin(), path.end());
    return path;
  }

  void add_candidate(std::size_t begin) {
    Candidate added{begin, begin + 1};
    while (!candidates_.empty()) {
      const std::size_t first = std::max(candidates_.back().first_end, begin + 1);
      if (!later_wins(added, candidates_.back(), first)) break;
      candidates_.pop_back();
    }
    if (!candidates_.empty()) {
      added.first_end = takeover(added, candidates_.back());
      if (added.first_end > num_layers_) return;
    }
    candidates_.push_back(added);
  }

  /// The first end at which `later` wins, knowing that it does not at `earlier`'s first one.
  std::size_t takeover(const Candidate& later, const Candidate& earlier) const {
    std::size_t loses = std::max(earlier.first_end, later.begin + 1);
    std::size_t wins = furthest_[earlier.begin] + 1;  // infinite for the earlier one from here on
    while (wins - loses > 1) {
      const std::size_t middle = loses + (wins - loses) / 2;
      (later_wins(later, earlier, middle) ? wins : loses) = middle;
    }
    return wins;
  }

  uint128 weight_of_shortest_path() const {
    uint128 weight = 0;
    for (std::size_t begin = 0; begin < num_layers_; begin = furthest_[begin]) {
      weight += doubled_weight(begin, furthest_[begin]);
    }
    return weight;
  }

  /// `extra` edges more than the short path: along the long path, then along the short one. The
  /// first edge of the short path that ends no earlier than the long path's edge `extra` further on
  /// encloses it; crossing the two weighs no more (Monge).
  static Path change_over(const Path& long_path, const Path& short_path, std::size_t num_edges) {
    const std::size_t extra = num_edges + 1 - short_path.size();
    std::size_t at = 0;
    while (short_path[at + 1] < long_path[at + 1 + extra]) ++at;
    Path path(long_path.begin(), long_path.begin() + static_cast<std::ptrdiff_t>(at + extra + 1));
    path.insert(path.end(), short_path.begin() + static_cast<std::ptrdiff_t>(at + 1),
                short_path.end());
    return path;
  }

  std::size_t num_layers_;
  int count_bits_;  // 2^count_bits_ is more than any sum of squared layer counts
  std::vector<std::uint64_t> sums_;
  std::vector<std::size_t> furthest_;  // the last end of a stage that begins here, within the bound
  std::vector<uint128> best_;          // the doubled weight and tolls of the lightest path to here
  std::vector<std::size_t> came_from_;
  std::deque<Candidate> candidates_;  // by begin and by first_end
};

}  // namespace

std::vector<int> most_balanced(const WholeCosts& costs, std::size_t num_stages, uint128 bound) {
  const Path path = Balancer(costs, bound).lightest_path_of(num_stages);
  internal_check(path.size() == num_stages + 1, "a balanced split has as many stages as asked for");
  std::vector<int> sizes;
  sizes.reserve(num_stages);
  for (std::size_t i = 1; i < path.size(); ++i) {
    sizes.push_back(static_cast<int>(path[i] - path[i - 1]));
  }
  return sizes;
}

}  // namespace pipewright
