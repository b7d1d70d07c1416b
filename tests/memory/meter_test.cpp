#include "pipewright/memory/meter.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

using torch::Tensor;

constexpr std::int64_t kBytes = 4096;

Tensor allocate(std::int64_t bytes = kBytes) { return torch::empty({bytes}, torch::kByte); }

std::int64_t live(int slot) { return MemoryMeter::stats(slot).live_bytes; }
std::int64_t peak(int slot) { return MemoryMeter::stats(slot).peak_bytes; }

class Meter : public ::testing::Test {
 protected:
  void SetUp() override {
    MemoryMeter::install();
    for (int slot = 0; slot < 8; ++slot) MemoryMeter::reset_peak(slot);
  }
  void TearDown() override {
    for (int slot = 0; slot < 8; ++slot) EXPECT_EQ(live(slot), 0) << "slot " << slot;
    MemoryMeter::uninstall();
  }
};

TEST_F(Meter, ChargesTheScopesSlot) {
  const MemoryScope scope(1);
  const Tensor a = allocate();
  EXPECT_EQ(live(1), kBytes);
  EXPECT_EQ(live(2), 0);
}

TEST_F(Meter, PeakIsTheMostThatWasLive) {
  const MemoryScope scope(1);
  { const std::vector<Tensor> both{allocate(), allocate()}; }
  EXPECT_EQ(live(1), 0);
  EXPECT_EQ(peak(1), 2 * kBytes);
  const Tensor one = allocate();
  EXPECT_EQ(peak(1), 2 * kBytes);
  MemoryMeter::reset_peak(1);
  EXPECT_EQ(peak(1), kBytes);
}

TEST_F(Meter, ScopesNest) {
  const MemoryScope outer(1);
  std::vector<Tensor> held{allocate()};
  {
    const MemoryScope inner(2);
    held.push_back(allocate());
    {
      const MemoryScope outside(MemoryMeter::kOutside);
      held.push_back(allocate());
    }
    held.push_back(allocate());
  }
  held.push_back(allocate());
  EXPECT_EQ(live(1), 2 * kBytes);
  EXPECT_EQ(live(2), 2 * kBytes);
}

TEST_F(Meter, ThreadsOutsideAScopeHaveTheirOwnSlot) {
  const MemoryScope scope(1);
  const std::int64_t before = live(MemoryMeter::kOutside);
  std::thread([&] {
    const Tensor a = allocate();
    EXPECT_EQ(live(MemoryMeter::kOutside), before + kBytes);
  }).join();
  EXPECT_EQ(live(MemoryMeter::kOutside), before);
  EXPECT_EQ(peak(1), 0);
}

TEST_F(Meter, FreedOnAnotherThreadIsCreditedToWhoPaid) {
  const MemoryScope scope(1);
  Tensor a = allocate();
  std::thread([moved = std::move(a)]() mutable {
    const MemoryScope other(2);
    moved.reset();
  }).join();
  EXPECT_EQ(live(1), 0);
  EXPECT_EQ(live(2), 0);
}

TEST_F(Meter, RechargeMovesTheWholeStorage) {
  const MemoryScope scope(1);
  Tensor a = allocate();
  EXPECT_TRUE(MemoryMeter::recharge(a.slice(0, 0, 10), 2));
  EXPECT_EQ(live(1), 0);
  EXPECT_EQ(live(2), kBytes);
  EXPECT_EQ(peak(2), kBytes);
  EXPECT_TRUE(MemoryMeter::recharge(a, 2));
  EXPECT_EQ(live(2), kBytes);
  a.reset();
  EXPECT_EQ(live(2), 0);
}

TEST_F(Meter, RechargeLeavesForeignMemoryAlone) {
  std::array<float, 4> data{};
  EXPECT_FALSE(MemoryMeter::recharge(torch::from_blob(data.data(), {4}), 1));
  EXPECT_FALSE(MemoryMeter::recharge(Tensor(), 1));
  EXPECT_FALSE(MemoryMeter::recharge(allocate(0), 1));
  EXPECT_FALSE(MemoryMeter::recharge(torch::eye(3).to_sparse(), 1));
  MemoryMeter::uninstall();
  EXPECT_FALSE(MemoryMeter::recharge(allocate(), 1));
  EXPECT_EQ(peak(1), 0);
}

TEST_F(Meter, EmptyTensorsCostNothing) {
  const MemoryScope scope(1);
  const Tensor a = allocate(0);
  EXPECT_EQ(live(1), 0);
}

TEST_F(Meter, FollowsAResizedStorage) {
  const MemoryScope scope(1);
  Tensor a = allocate();
  a.resize_({2 * kBytes});
  EXPECT_EQ(live(1), 2 * kBytes);
  a.set_();
  EXPECT_EQ(live(1), 0);
}

TEST_F(Meter, OlderTensorsAreNotCounted) {
  MemoryMeter::uninstall();
  Tensor older = allocate();
  MemoryMeter::install();
  const MemoryScope scope(1);
  older.reset();
  EXPECT_EQ(live(1), 0);
}

TEST_F(Meter, TensorsOutliveAnUninstall) {
  const MemoryScope scope(1);
  Tensor a = allocate();
  MemoryMeter::uninstall();
  const Tensor unmetered = allocate();
  EXPECT_EQ(live(1), kBytes);
  a.reset();
  EXPECT_EQ(live(1), 0);
}

TEST_F(Meter, InstallingTwiceCountsOnce) {
  MemoryMeter::install();
  const MemoryScope scope(1);
  const Tensor a = allocate();
  EXPECT_EQ(live(1), kBytes);
}

TEST_F(Meter, SumsAreRightWithThreadsAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kTensors = 500;
  std::vector<std::vector<Tensor>> held(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&held, t] {
      const MemoryScope own(t % 2);  // two threads a slot
      for (int i = 0; i < kTensors; ++i) {
        held[t].push_back(allocate());
        if (i % 5 == 0) held[t].pop_back();
        if (i % 7 == 1) MemoryMeter::recharge(held[t].back(), 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(live(0) + live(1) + live(2), kThreads * (kTensors - kTensors / 5) * kBytes);
  EXPECT_EQ(live(0), live(1));
  EXPECT_GT(live(2), 0);
  EXPECT_GE(peak(2), live(2));
}

TEST_F(Meter, ATrainStepGivesBackWhatItTook) {
  const MemoryScope scope(1);
  torch::nn::Sequential model(torch::nn::Linear(32, 64), torch::nn::ReLU(),
                              torch::nn::BatchNorm1d(64), torch::nn::Linear(64, 8));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const Tensor x = torch::randn({16, 32});
  std::int64_t before = 0;
  for (int step = 0; step < 4; ++step) {
    model->forward(x).square().mean().backward();
    optimizer.step();
    if (step == 0) before = live(1);  // the first one makes the gradients
    EXPECT_EQ(live(1), before);
  }
  EXPECT_GE(peak(1), before + 2 * 16 * 64 * 4);
}

TEST_F(Meter, SlotsBeyondTheLastAreRefused) {
  EXPECT_THROW(MemoryScope(MemoryMeter::kMaxSlots), InvalidArgument);
  EXPECT_THROW(MemoryMeter::stats(-2), InvalidArgument);
  EXPECT_NO_THROW(MemoryMeter::stats(MemoryMeter::kMaxSlots - 1));
  try {
    MemoryMeter::reset_peak(5000);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "[memory] there is no slot 5000; use 0 to 4095");
  }
}

}  // namespace
}  // namespace pipewright
