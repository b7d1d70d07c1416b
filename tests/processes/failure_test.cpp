// Promise 6 over processes, with real training: whatever becomes of a rank, the others end within
// the deadline, and all of them say the first cause.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <iostream>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tests/processes/train_on.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;
constexpr const char* kLifeDeadline = "3";
/// From what happened to the end of a process that learns of it: far more than it takes.
constexpr double kMostSeconds = 20;

/// All but `victim` end, with an error that names it first. Returns the longest time it took.
double expect_all_blame(Processes& processes, int victim, Clock::time_point since) {
  const std::string name = "[transport] rank " + std::to_string(victim);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(processes.wait(rank), 1);
    EXPECT_THAT(error_of(processes, rank),
                AllOf(testing::StartsWith(name),
                      HasSubstr("; rank " + std::to_string(rank) + " was waiting for the ")));
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - since).count();
  EXPECT_LT(seconds, kMostSeconds);
  return seconds;
}

int num_rounds() {
  const char* rounds = std::getenv("PIPEWRIGHT_TEST_ROUNDS");
  return rounds == nullptr ? 1 : std::stoi(rounds);
}

class Killed : public testing::TestWithParam<int> {};

TEST_P(Killed, RankIsNamedByAllOthers) {
  const int victim = GetParam();
  double longest = 0;
  for (int round = 0; round < num_rounds(); ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    std::mt19937 random(static_cast<unsigned>(100 * victim + round));
    Processes processes(kTrainOn, kRanks, {{"life", "30"}});
    wait_for_training(processes, kRanks);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300000));
    const auto since = Clock::now();
    processes.signal(victim, SIGKILL);
    longest = std::max(longest, expect_all_blame(processes, victim, since));
  }
  if (num_rounds() > 1) std::cout << "longest of " << num_rounds() << ": " << longest << " s\n";
}

INSTANTIATE_TEST_SUITE_P(Each, Killed, testing::Range(0, kRanks));

/// Several steps are under way when it happens.
TEST_P(Killed, RankOfAnAsynchronousScheduleIsNamedByAllOthers) {
  const int victim = GetParam();
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    SCOPED_TRACE(schedule);
    Processes processes(kTrainOn, kRanks, {{"life", "30"}, {"schedule", schedule}});
    wait_for_training(processes, kRanks);
    const auto since = Clock::now();
    processes.signal(victim, SIGKILL);
    expect_all_blame(processes, victim, since);
  }
}

class KilledInAGrid : public testing::TestWithParam<int> {};

/// Two replicas of two ranks: some wait for a message of the victim, some for its sums, some for
/// one that does.
TEST_P(KilledInAGrid, RankIsNamedByAllOthers) {
  constexpr int kProcesses = 4;
  const int victim = GetParam();
  double longest = 0;
  for (int round = 0; round < num_rounds(); ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    std::mt19937 random(static_cast<unsigned>(100 * victim + round));
    Processes processes(kTrainOn, kProcesses, {{"life", "30"}, {"replicas", "2"}});
    wait_for_training(processes, kProcesses);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300000));
    const auto since = Clock::now();
    processes.signal(victim, SIGKILL);
    for (int rank = 0; rank < kProcesses; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(processes.wait(rank), 1);
      EXPECT_THAT(error_of(processes, rank),
                  AllOf(testing::StartsWith("[transport] rank " + std::to_string(victim)),
                        HasSubstr(" was waiting for the ")));
    }
    longest = std::max(longest, std::chrono::duration<double>(Clock::now() - since).count());
  }
  EXPECT_LT(longest, kMostSeconds);
  if (num_rounds() > 1) std::cout << "longest of " << num_rounds() << ": " << longest << " s\n";
}

INSTANTIATE_TEST_SUITE_P(Each, KilledInAGrid, testing::Range(0, 4));

TEST(ThrowingInAGrid, LayerIsNamedOnEveryRank) {
  Processes processes(
      kTrainOn, 4,
      {{"life", "30"}, {"replicas", "2"}, {"what", "layer"}, {"rank", "3"}, {"step", "2"}});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(processes.wait(rank), 1);
    EXPECT_THAT(error_of(processes, rank), AllOf(HasSubstr("stage 1"), HasSubstr("the fuse blew")));
  }
}

class Stopped : public testing::TestWithParam<int> {};

TEST_P(Stopped, RankIsNamedByAllAlsoByItself) {
  const int victim = GetParam();
  Processes processes(kTrainOn, kRanks, {{"life", kLifeDeadline}});
  wait_for_training(processes, kRanks);
  const auto since = Clock::now();
  processes.signal(victim, SIGSTOP);
  expect_all_blame(processes, victim, since);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    EXPECT_THAT(error_of(processes, rank), HasSubstr("gave no sign of life for 3 s"));
  }
  processes.signal(victim, SIGCONT);
  EXPECT_EQ(processes.wait(victim), 1);
  const std::string itself = "[transport] rank " + std::to_string(victim);
  EXPECT_THAT(error_of(processes, victim),
              AnyOf(HasSubstr(itself + " was itself stopped for "),
                    HasSubstr(itself + " gave no sign of life for 3 s")));
}

INSTANTIATE_TEST_SUITE_P(Each, Stopped, testing::Range(0, kRanks));

class Throwing : public testing::TestWithParam<int> {};

TEST_P(Throwing, LayerIsNamedOnEveryRank) {
  const std::string victim = std::to_string(GetParam());
  Processes processes(kTrainOn, kRanks,
                      {{"life", "30"}, {"what", "layer"}, {"rank", victim}, {"step", "2"}});
  const std::string place = "[exec] rank " + victim + ", stage " + victim + ", " + victim + "F0 ";
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(processes.wait(rank), 1);
    EXPECT_THAT(error_of(processes, rank),
                AllOf(HasSubstr(place + "(forward): "), HasSubstr("the fuse blew")));
    if (rank != GetParam()) {
      EXPECT_THAT(error_of(processes, rank),
                  AllOf(HasSubstr("[transport] rank " + victim + " failed: [exec]"),
                        HasSubstr("rank " + std::to_string(rank) + " was waiting for the ")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Throwing, testing::Range(0, kRanks));

Arguments leaving(const std::string& how) {
  return {{"life", "30"}, {"what", how}, {"rank", "1"}, {"step", "2"}};
}

TEST(Leaving, ByExitIsNoticed) {
  for (const char* how : {"exit", "_exit"}) {
    Processes processes(kTrainOn, kRanks, leaving(how));
    expect_all_blame(processes, 1, Clock::now());
    EXPECT_EQ(processes.wait(1), 3);
  }
}

TEST(Leaving, WithAGoodbyeIsNoticed) {
  Processes processes(kTrainOn, kRanks, leaving("return"));
  expect_all_blame(processes, 1, Clock::now());
  EXPECT_EQ(processes.wait(1), 0);
}

TEST(Leaving, ByAnExceptionOfTheProgramIsTold) {
  Processes processes(kTrainOn, kRanks, leaving("throw"));
  expect_all_blame(processes, 1, Clock::now());
  EXPECT_EQ(processes.wait(1), 1);
  EXPECT_THAT(processes.words(1), HasSubstr("no more data"));
  EXPECT_THAT(error_of(processes, 0), HasSubstr("left the run because of an exception"));
}

TEST(Slow, RankIsNamedAtTheDeadlineNotThoseThatWaitForIt) {
  Processes processes(
      kTrainOn, kRanks,
      {{"life", "30"}, {"deadline", "4"}, {"what", "slow"}, {"rank", "2"}, {"step", "2"}});
  for (const int rank : {0, 1}) {
    EXPECT_EQ(processes.wait(rank), 1);
    EXPECT_THAT(error_of(processes, rank),
                AnyOf(HasSubstr("[transport] rank 2 did not send within 4 s"),
                      HasSubstr("[transport] rank 2 kept rank 1 waiting for 4 s")));
  }
}

TEST(AgentStore, OutlivesRankZeroWhichIsNamed) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  c10d::TCPStore store("127.0.0.1", options);
  Processes processes(
      kTrainOn, kRanks, {{"life", "30"}},
      {{"MASTER_PORT", std::to_string(store.getPort())}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  wait_for_training(processes, kRanks);
  const auto since = Clock::now();
  processes.signal(0, SIGKILL);
  expect_all_blame(processes, 0, since);
}

}  // namespace
}  // namespace pipewright
