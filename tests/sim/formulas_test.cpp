// The closed formulas of the papers, where they hold exactly, over a sweep of sizes and times.
// Times are multiples of 1/4, so that sums of them are exact in floating point where chunks are 1,
// 2 or 4.

#include <gtest/gtest.h>

#include <algorithm>

#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"

namespace pipewright {
namespace {

struct Times {
  double forward;
  double input;
  double weight;
  double whole() const { return forward + input + weight; }
};

const Times kTimes[] = {{1, 1, 1}, {1, 2, 1}, {2, 1, 0.5},  {1, 1.5, 1},
                        {3, 4, 2}, {1, 1, 0}, {0.25, 3, 0}, {5, 2, 1.75}};

Simulation run(const std::string& name, int ranks, int micro_batches, const Times& t,
               int chunks = 0, double activation_bytes = 0) {
  const Program program = make_schedule(
      {.name = name, .ranks = ranks, .micro_batches = micro_batches, .chunks = chunks});
  UniformShare share;
  share.forward = t.forward;
  share.backward = t.input + t.weight;
  share.backward_input = t.input;
  share.backward_weight = t.weight;
  share.activation_bytes = activation_bytes;
  StepCosts costs;
  costs.stages = uniform_stages(share, program.placement.size(),
                                static_cast<std::size_t>(program.num_chunks()));
  const Simulation plain = simulate(program, costs);
  const Simulation lowered = simulate(lower_sends(program), costs);
  EXPECT_EQ(plain.step_time(), lowered.step_time());
  EXPECT_EQ(plain.peak_bytes, lowered.peak_bytes);
  return lowered;
}

/// Calls `check` for ranks 1 to 12 and micro-batches 1 to 30.
template <typename Check>
void sweep(Check check) {
  for (const Times& t : kTimes) {
    for (int ranks = 1; ranks <= 12; ++ranks) {
      for (int micro_batches = 1; micro_batches <= 30; ++micro_batches) {
        SCOPED_TRACE(testing::Message() << "K=" << ranks << " M=" << micro_batches << " F="
                                        << t.forward << " I=" << t.input << " W=" << t.weight);
        check(ranks, micro_batches, t);
      }
    }
  }
}

TEST(Formula, GPipe) {
  sweep([](int p, int m, const Times& t) {
    const Simulation sim = run("gpipe", p, m, t);
    EXPECT_EQ(sim.step_time(), (m + p - 1) * t.whole());
    EXPECT_NEAR(sim.times.bubble_fraction(), (p - 1.0) / (m + p - 1), 1e-12);
    for (int r = 0; r < p; ++r) EXPECT_EQ(sim.peak_in_flight[static_cast<std::size_t>(r)], m);
  });
}

TEST(Formula, OneFOneB) {
  sweep([](int p, int m, const Times& t) {
    const Simulation sim = run("1f1b", p, m, t);
    EXPECT_EQ(sim.step_time(), (m + p - 1) * t.whole());
    EXPECT_NEAR(sim.times.bubble_fraction(), (p - 1.0) / (m + p - 1), 1e-12);
    for (int r = 0; r < p; ++r)
      EXPECT_EQ(sim.peak_in_flight[static_cast<std::size_t>(r)], std::min(p - r, m));
  });
}

TEST(Formula, EagerOneFOneBHasTheSameBubbleAndTwiceTheReserve) {
  sweep([](int p, int m, const Times& t) {
    const Simulation sim = run("eager-1f1b", p, m, t);
    EXPECT_EQ(sim.step_time(), (m + p - 1) * t.whole());
    for (int r = 0; r < p; ++r)
      EXPECT_EQ(sim.peak_in_flight[static_cast<std::size_t>(r)], std::min(2 * (p - r) - 1, m));
  });
}

TEST(Formula, EagerOneFOneBHidesALatencyThatOneFOneBWaitsFor) {
  const auto step_time = [](const std::string& name, int p, int m, double latency) {
    StepCosts costs;
    UniformShare share;
    share.forward = 1;
    share.backward = 2;
    costs.stages = uniform_stages(share, static_cast<std::size_t>(p), 1);
    costs.link.latency = latency;
    return simulate(lower_sends(make_schedule({.name = name, .ranks = p, .micro_batches = m})),
                    costs)
        .step_time();
  };
  for (int p = 2; p <= 8; ++p) {
    for (const double latency : {0.125, 0.25, 0.5}) {
      const int m = 4 * p;
      // Filling and draining pass every link once; between them nobody waits.
      EXPECT_EQ(step_time("eager-1f1b", p, m, latency), 3 * (m + p - 1) + 2 * (p - 1) * latency);
      EXPECT_GT(step_time("1f1b", p, m, latency), step_time("eager-1f1b", p, m, latency) + latency);
    }
  }
}

TEST(Formula, InterleavedWhereMicroBatchesAreAMultipleOfRanks) {
  sweep([](int p, int m, const Times& t) {
    if (m % p != 0) return;
    for (const int v : {1, 2, 3, 4}) {
      const Simulation sim = run("interleaved-1f1b", p, m, t, v);
      EXPECT_NEAR(sim.step_time(), m * t.whole() + (p - 1) * t.whole() / v, 1e-9) << "V=" << v;
      if (v == 3) continue;  // thirds are not exact
      EXPECT_EQ(sim.step_time(), m * t.whole() + (p - 1) * t.whole() / v) << "V=" << v;
    }
  });
}

TEST(Formula, InterleavedIsNeverSlowerThanOneFOneBElsewhere) {
  sweep([](int p, int m, const Times& t) {
    const double plain = run("1f1b", p, m, t).step_time();
    for (const int v : {2, 4})
      EXPECT_LE(run("interleaved-1f1b", p, m, t, v).step_time(), plain) << "V=" << v;
  });
}

TEST(Formula, ZbH1WhereThereAreEnoughMicroBatchesAndWeightsAreNotSlowest) {
  sweep([](int p, int m, const Times& t) {
    const Simulation sim = run("zb-h1", p, m, t, 0, 2);
    for (int r = 0; r < p; ++r)
      EXPECT_EQ(sim.peak_in_flight[static_cast<std::size_t>(r)], std::min(p - r, m));
    if (m < p || t.weight > std::min(t.forward, t.input)) return;
    EXPECT_EQ(sim.step_time(), m * t.whole() + (p - 1) * (t.forward + t.input - t.weight));
    if (m < 2 * p) return;
    // (p - r) whole activations of 2 bytes and r halves.
    for (int r = 0; r < p; ++r)
      EXPECT_EQ(sim.peak_bytes[static_cast<std::size_t>(r)], 2 * (p - r) + r);
  });
}

TEST(Formula, ZbH2ByTheLongestSpanOfARank) {
  sweep([](int p, int m, const Times& t) {
    const Simulation sim = run("zb-h2", p, m, t);
    EXPECT_EQ(sim.peak_in_flight[0], std::min(2 * p - 1, m));
    if (m < 2 * p - 1 || t.weight > std::min(t.forward, t.input)) return;
    double longest = 0;
    for (const RankTimes& rank : sim.times.ranks()) longest = std::max(longest, rank.span());
    EXPECT_EQ(longest, m * t.whole() + (p - 1) * (t.forward + t.input - 2 * t.weight));
    if (t.forward == t.input && t.input == t.weight) {
      for (const RankTimes& rank : sim.times.ranks()) EXPECT_EQ(rank.span(), rank.busy());
    }
  });
}

TEST(Formula, ZbVHasNoBubbleOnARankForEqualTimes) {
  const Times t{1, 1, 1};
  for (int p = 1; p <= 12; ++p) {
    for (int m = 2 * p; m <= 40; ++m) {
      SCOPED_TRACE(testing::Message() << "K=" << p << " M=" << m);
      const Simulation sim = run("zb-v", p, m, t, 0, 8);
      EXPECT_EQ(sim.step_time(), 3 * m + (p - 1) / 2.0);
      for (const RankTimes& rank : sim.times.ranks()) EXPECT_EQ(rank.span(), 3 * m);
      for (const double held : sim.peak_in_flight) EXPECT_EQ(held, p);
      for (const double bytes : sim.peak_bytes) EXPECT_GE(bytes, 8 * p);
    }
  }
}

TEST(Formula, ForwardOnly) {
  sweep([](int p, int m, const Times& t) {
    const Simulation sim = run("forward-only", p, m, t);
    EXPECT_EQ(sim.step_time(), (m + p - 1) * t.forward);
    for (const double held : sim.peak_in_flight) EXPECT_EQ(held, 1);
  });
}

}  // namespace
}  // namespace pipewright
