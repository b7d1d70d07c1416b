// Nothing is left running, however a run ends.

#include <gmock/gmock.h>

#include <csignal>

#include "tests/launch/launcher.h"

namespace pipewright::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Stopping = LaunchTest;

/// A rank that says where it is and stays; `exec` keeps its process id.
constexpr const char* kStay = "echo $$ > pid$RANK; exec sleep 1000";

TEST_F(Stopping, RanksThatIgnoreSigtermAreKilled) {
  const auto result =
      run({"-n", "3", "--grace", "0.2"},
          "if [ $RANK = 1 ]; then while [ ! -s pid0 ] || [ ! -s pid2 ]; do :; done; "
          "exit 3; fi; trap '' TERM; echo $$ > pid$RANK; while :; do sleep 1000; done");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err,
              HasSubstr("stopped: rank 0 (had to be killed), rank 2 (had to be killed)\n"));
  EXPECT_FALSE(is_alive(pid_in("pid0")));
  EXPECT_FALSE(is_alive(pid_in("pid2")));
}

TEST_F(Stopping, RanksMayUseTheGraceToEndWell) {
  const auto result = run({"-n", "2"},
                          "if [ $RANK = 1 ]; then while [ ! -s pid0 ]; do :; done; exit 3; fi; "
                          "trap 'sleep 0.2; echo saved; exit 0' TERM; echo $$ > pid0; "
                          "while :; do sleep 0.01; done");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "saved\n");
  EXPECT_THAT(result.err, HasSubstr("stopped: rank 0\n"));
}

TEST_F(Stopping, WhatARankStartedGoesWithIt) {
  const auto result = run({"-n", "2", "--grace", "0.2"},
                          "if [ $RANK = 1 ]; then while [ ! -s pid0 ]; do :; done; exit 3; fi; "
                          "(trap '' TERM; sleep 1000) & echo $! > pid0; wait");
  EXPECT_EQ(result.status, 3);
  EXPECT_FALSE(is_alive(pid_in("pid0")));
}

TEST_F(Stopping, WhatARankStartedHasTheGraceTooWhenTheRankItselfIsGone) {
  const auto result =
      run({"-n", "2"},
          "if [ $RANK = 1 ]; then while [ ! -s pid0 ]; do :; done; exit 3; fi; "
          "sh -c 'trap \"sleep 0.2; echo saved >> saved; exit 0\" TERM; echo $$ > pid0; "
          "while :; do sleep 0.01; done'; :");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(text("saved"), "saved\n");
  EXPECT_FALSE(is_alive(pid_in("pid0")));
}

TEST_F(Stopping, WhatARankLeftBehindIsStoppedWhenAllHaveEnded) {
  const auto result = run({"-n", "1"}, "sleep 1000 & echo $! > pid0");
  EXPECT_EQ(result.status, 0);
  EXPECT_FALSE(is_alive(pid_in("pid0")));
  EXPECT_THAT(result.err, HasSubstr("what they left running is stopped"));
}

TEST_F(Stopping, AProcessThatLeftTheGroupAndKeepsThePipeIsNotWaitedFor) {
  const auto result = run({"-n", "1"}, "setsid sleep 1000 & echo $! > pid0; echo said; exit 4");
  EXPECT_EQ(result.status, 4);
  EXPECT_EQ(result.out, "said\n");
  kill(pid_in("pid0"), SIGKILL);
}

TEST_F(Stopping, ASuspendedRankIsStoppedToo) {
  Launcher launcher(folder(), {"-n", "2"},
                    "echo $$ > pid$RANK; [ $RANK = 0 ] && exec sleep 1000; "
                    "while [ ! -e go ]; do sleep 0.01; done; exit 3");
  const pid_t suspended = pid_in("pid0");
  kill(suspended, SIGSTOP);
  EXPECT_TRUE(eventually(
      [&] { return launcher.err().find("rank 0 is suspended (SIGSTOP)") != std::string::npos; },
      "the launcher says so"));
  std::filesystem::create_directory(folder() / "go");
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("stopped: rank 0\n"));
  EXPECT_FALSE(is_alive(suspended));
}

TEST_F(Stopping, ASuspendedRankThatIgnoresSigtermIsKilled) {
  Launcher launcher(
      folder(), {"-n", "2", "--grace", "0.2"},
      "trap '' TERM; echo $$ > pid$RANK; [ $RANK = 0 ] && while :; do sleep 1000; done; "
      "while [ ! -e go ]; do sleep 0.01; done; exit 3");
  const pid_t suspended = pid_in("pid0");
  kill(suspended, SIGSTOP);
  std::filesystem::create_directory(folder() / "go");
  EXPECT_EQ(launcher.wait().status, 3);
  EXPECT_FALSE(is_alive(suspended));
}

TEST_F(Stopping, ARankThatGoesOnIsSaidTo) {
  Launcher launcher(folder(), {"-n", "1"}, kStay);
  const pid_t rank = pid_in("pid0");
  const auto says = [&](const std::string& words) {
    return eventually([&] { return launcher.err().find(words) != std::string::npos; }, words);
  };
  kill(rank, SIGSTOP);
  EXPECT_TRUE(says("rank 0 is suspended"));
  kill(rank, SIGCONT);
  EXPECT_TRUE(says("rank 0 goes on (SIGCONT)"));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait().status, 143);
}

class PassedOn : public Stopping, public testing::WithParamInterface<int> {};

TEST_P(PassedOn, ReachesEveryRank) {
  Launcher launcher(folder(), {"-n", "2", "--max-restarts", "3"},
                    "trap 'echo caught $RANK > caught$RANK; exit 0' INT TERM HUP QUIT; "
                    "echo $$ > pid$RANK; while :; do sleep 0.01; done");
  const pid_t ranks[] = {pid_in("pid0"), pid_in("pid1")};  // NOLINT(modernize-avoid-c-arrays)
  launcher.signal(GetParam());
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 128 + GetParam());
  EXPECT_EQ(text("caught0") + text("caught1"), "caught 0\ncaught 1\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("is passed on to the ranks"), Not(HasSubstr("restart"))));
  for (const pid_t rank : ranks) EXPECT_FALSE(is_alive(rank));
}

INSTANTIATE_TEST_SUITE_P(Signal, PassedOn, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT));

TEST_F(Stopping, InterruptedRanksThatStayAreKilledAfterTheGrace) {
  Launcher launcher(folder(), {"-n", "2", "--grace", "0.2"},
                    "trap '' INT TERM; echo $$ > pid$RANK; while :; do sleep 1000; done");
  const pid_t first = pid_in("pid0");
  const pid_t second = pid_in("pid1");
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait().status, 130);
  EXPECT_FALSE(is_alive(first));
  EXPECT_FALSE(is_alive(second));
}

TEST_F(Stopping, ASecondInterruptKillsAtOnce) {
  Launcher launcher(folder(), {"-n", "1", "--grace", "1000"},
                    "trap '' INT TERM; echo $$ > pid$RANK; while :; do sleep 1000; done");
  const pid_t rank = pid_in("pid0");
  launcher.signal(SIGINT);
  EXPECT_TRUE(eventually([&] { return launcher.err().find("is passed on") != std::string::npos; },
                         "the first"));
  launcher.signal(SIGINT);
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(result.err, HasSubstr("SIGINT again: the ranks are killed"));
  EXPECT_FALSE(is_alive(rank));
}

TEST_F(Stopping, SignalsThatTheShellIgnoredForABackgroundJobCount) {
  const std::string command =
      "cd " + folder().string() +
      " && trap '' INT && { " PIPEWRIGHT_PROGRAM " launch -n 1 -- /bin/sh -c '" + kStay +
      "' 2>err & l=$!; while [ ! -s pid0 ]; do sleep 0.01; done; kill -INT $l; wait $l; "
      "echo $? > status; }";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(text("status"), "130\n");
}

TEST_F(Stopping, RanksEndWhenTheLauncherIsKilled) {
  Launcher launcher(folder(), {"-n", "2"},
                    "trap '' TERM INT HUP; sleep 1000 & echo $! > child$RANK; echo $$ > pid$RANK; "
                    "while :; do sleep 1000; done");
  std::vector<pid_t> pids;
  for (const char* file : {"pid0", "pid1", "child0", "child1"}) pids.push_back(pid_in(file));
  for (const pid_t pid : pids) EXPECT_TRUE(is_alive(pid));
  launcher.signal(SIGKILL);
  launcher.wait();
  for (const pid_t pid : pids)
    EXPECT_TRUE(eventually([&] { return !is_alive(pid); }, std::to_string(pid) + " ends"));
}

TEST_F(Stopping, ATerminalThatIsNotReadHoldsUpRankZeroAlone) {
  const std::string command =
      "cd " + folder().string() +
      " && mkfifo pipe && exec 3<>pipe && { " PIPEWRIGHT_PROGRAM
      " launch -n 2 --log-dir logs -- /bin/sh -c '[ $RANK = 1 ] && seq 300000 && echo 1 > done && "
      "exec sleep 1000; exec yes' >pipe 2>err & l=$!; while [ ! -s done ]; do sleep 0.01; done; "
      "kill -INT $l; wait $l; echo $? > status; }";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(text("status"), "130\n");
  EXPECT_THAT(text("logs/rank-1.log"), HasSubstr("\n300000\n"));
  EXPECT_LT(text("logs/rank-0.log").size(), 16U << 20);
}

TEST_F(Stopping, ARestartStopsEverythingFirst) {
  const auto result = run(
      {"-n", "2", "--max-restarts", "1", "--grace", "0.2"},
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && { kill -0 $(cat pid0) 2>/dev/null && exit 8; exit 0; "
      "}; if [ $RANK = 1 ]; then while [ ! -s pid0 ]; do :; done; exit 3; fi; "
      "(trap '' TERM; sleep 1000) & echo $! > pid0; wait");
  EXPECT_EQ(result.status, 0) << result.err;
}

}  // namespace
}  // namespace pipewright::launch
