// Writers that are killed: what was whole before still is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "pipewright/checkpoint/directory.h"
#include "tests/checkpoint/sample.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;
using testing_checkpoint::Sample;
using testing_checkpoint::TempFolder;

/// Runs a loop of saves in a process of its own, kills it after a while, and returns how many saves
/// were finished. `save` gets their number, from `first` on.
std::int64_t killed_after(std::chrono::microseconds time, std::int64_t first,
                          const std::function<void(std::int64_t)>& save) {
  std::array<int, 2> finished{};
  EXPECT_EQ(pipe(finished.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    try {
      for (std::int64_t i = first;; ++i) {
        save(i);
        if (write(finished[1], &i, sizeof(i)) != sizeof(i)) _exit(1);
      }
    } catch (...) {
      _exit(2);
    }
  }
  close(finished[1]);
  std::this_thread::sleep_for(time);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
  std::int64_t last = first - 1;
  while (read(finished[0], &last, sizeof(last)) == sizeof(last)) {
  }
  close(finished[0]);
  return last;
}

/// Of one save on this machine as busy as it is.
std::chrono::microseconds time_of_a_save() {
  const TempFolder dir;
  const auto start = std::chrono::steady_clock::now();
  Sample(1, 5000).save(dir.path(), 1);
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                               start);
}

TEST(KilledWriters, LeaveTheLastFinishedCheckpointWhole) {
  const TempFolder dir;
  std::mt19937 random;
  const auto longest = 6 * time_of_a_save();
  std::int64_t finished = 0;
  for (int round = 0; round < 40; ++round) {
    finished =
        killed_after(longest * (random() % 1000) / 1000, finished + 1, [&](std::int64_t step) {
          Sample(step, 5000).save(dir.path(), step);
          prune_checkpoints(dir.path(), 2);
        });
    const NewestWhole found = newest_whole(dir.path());
    if (finished == 0 && !found.checkpoint) continue;
    ASSERT_TRUE(found.checkpoint);
    EXPECT_TRUE(found.refused.empty());
    const std::int64_t step = found.checkpoint->step();
    // Killed between the rename and the report: one more than was reported.
    EXPECT_TRUE(step == finished || step == finished + 1) << step << " after " << finished;
    EXPECT_TRUE(Sample(step, 5000).is_in(*found.checkpoint));
    finished = step;
  }
  EXPECT_GT(finished, 0);
}

TEST(KilledWriters, LeaveTheOldOneWholeWhereTheyReplaceIt) {
  const TempFolder dir;
  std::mt19937 random;
  std::int64_t finished = 0;
  Sample(0, 5000).save(dir.path(), 5);
  for (int round = 0; round < 40; ++round) {
    finished = killed_after(std::chrono::microseconds(random() % 30'000), finished + 1,
                            [&](std::int64_t number) { Sample(number, 5000).save(dir.path(), 5); });
    const NewestWhole found = newest_whole(dir.path());
    ASSERT_TRUE(found.checkpoint);
    EXPECT_TRUE(found.refused.empty());
    const auto number = found.checkpoint->state().at("seed").get<std::int64_t>();
    EXPECT_TRUE(number == finished || number == finished + 1) << number << " after " << finished;
    EXPECT_TRUE(Sample(number, 5000).is_in(*found.checkpoint));
    finished = number;
  }
}

enum class Ended { kKilled, kByItself, kNotAllowed };

/// Runs `call` in a process of its own that is killed at the given place: place 2n is before its
/// n-th call of the system, 2n + 1 after it.
Ended killed_at(int place, const std::function<void()>& call) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    raise(SIGSTOP);
    try {
      call();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  for (int i = 0; i <= place && WIFSTOPPED(status); ++i) {
    if (ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) break;
    waitpid(child, &status, 0);
  }
  if (WIFEXITED(status)) {
    EXPECT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
    return WEXITSTATUS(status) == 77 ? Ended::kNotAllowed : Ended::kByItself;
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return Ended::kKilled;
}

/// Every place at which a writer can be killed, one by one (after one call is before the next).
/// Step 3 is saved once more, then 3 and the new 4 are kept, of 2, 3 and 4.
TEST(KilledWriters, LeaveAWholeCheckpointAtEveryCallOfTheSystem) {
  const TempFolder folder;
  for (const int step : {2, 3}) Sample(step).save(folder / "start", step);
  int place = 0;
  for (Ended ended = Ended::kKilled; ended == Ended::kKilled; place += 2) {
    const std::string dir = folder / "run";
    fs::remove_all(dir);
    fs::copy(folder / "start", dir, fs::copy_options::recursive);
    ended = killed_at(place, [&] {
      Sample(33).save(dir, 3);
      Sample(4).save(dir, 4);
      prune_checkpoints(dir, 2);
    });
    if (ended == Ended::kNotAllowed)
      GTEST_SKIP() << "this machine does not let a process be traced";
    for (const bool is_tidy : {false, true}) {
      if (is_tidy) tidy_checkpoints(dir);
      const NewestWhole found = newest_whole(dir);
      ASSERT_TRUE(found.checkpoint) << "killed at " << place;
      EXPECT_TRUE(found.refused.empty()) << found.refused[0].reason;
      const bool is_any = Sample(3).is_in(*found.checkpoint) ||
                          Sample(33).is_in(*found.checkpoint) || Sample(4).is_in(*found.checkpoint);
      EXPECT_TRUE(is_any) << "killed at " << place;
    }
    // Tidied, there are whole checkpoints and nothing else.
    for (const auto& entry : fs::directory_iterator(dir)) {
      EXPECT_NO_THROW(open_checkpoint(entry.path().string()).verify());
    }
  }
  EXPECT_GT(place, 200);  // it did run to its end, through all of them
}

}  // namespace
}  // namespace pipewright
