// One machine: what ranks see, what is logged and said, how failures are told.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "pipewright/base/cores.h"
#include "pipewright/launch/environment.h"
#include "pipewright/launch/launch.h"
#include "tests/launch/launcher.h"

namespace pipewright::launch {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using SingleNode = LaunchTest;

TEST_F(SingleNode, RanksHaveTheEnvironmentOfTorchrun) {
  setenv("MASTER_PORT", "1", 1);
  setenv("TORCHELASTIC_ERROR_FILE", "of an outer launcher", 1);
  const auto result = run({"-n", "3", "--max-restarts", "4", "--log-dir", "logs"}, "env");
  unsetenv("MASTER_PORT");
  unsetenv("TORCHELASTIC_ERROR_FILE");
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string environment = fmt::format("\n{}", text("logs/rank-2.log"));
  for (const char* line :
       {"RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=3", "GROUP_RANK=0",
        "GROUP_WORLD_SIZE=1", "ROLE_NAME=default", "ROLE_RANK=2", "ROLE_WORLD_SIZE=3",
        "MASTER_ADDR=127.0.0.1", "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_MAX_RESTARTS=4",
        "TORCHELASTIC_USE_AGENT_STORE=False"}) {
    EXPECT_THAT(environment, HasSubstr(fmt::format("\n{}\n", line)));
  }
  EXPECT_THAT(environment, Not(HasSubstr("MASTER_PORT=1\n")));
  EXPECT_THAT(environment, Not(HasSubstr("TORCHELASTIC_ERROR_FILE")));
  EXPECT_THAT(environment, HasSubstr("TORCHELASTIC_RUN_ID="));
  EXPECT_THAT(environment,
              HasSubstr("OMP_NUM_THREADS=" + std::to_string(default_num_threads(3)) + "\n"));
}

TEST_F(SingleNode, AllRanksHaveTheSamePortAndRunId) {
  ASSERT_EQ(run({"-n", "2", "--log-dir", "logs"}, "echo $MASTER_PORT $TORCHELASTIC_RUN_ID").status,
            0);
  EXPECT_NE(text("logs/rank-0.log"), "");
  EXPECT_EQ(text("logs/rank-0.log"), text("logs/rank-1.log"));
}

/// Signals go to any thread that does not keep them away; launch() cannot ask that of its
/// caller's.
TEST(Launch, EndsInAProgramThatHasThreads) {
  class Quiet : public Sink {
   public:
    void message(std::string_view) override {}
    void output(Stream, std::string_view) override {}
  };
  std::atomic<bool> ended = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i)
    others.emplace_back([&] {
      while (!ended) continue;
    });
  LaunchOptions options;
  options.local_ranks = 2;
  options.log_dir = (std::filesystem::temp_directory_path() / fmt::format("{}", getpid())).string();
  Quiet quiet;
  for (int round = 0; round < 5; ++round) {
    options.command = {"/bin/sh", "-c", "exit 0"};
    EXPECT_EQ(launch(options, quiet), 0);
    options.command = {"/bin/sh", "-c", "exit 3"};
    EXPECT_EQ(launch(options, quiet), 3);
  }
  ended = true;
  for (auto& other : others) other.join();
  std::filesystem::remove_all(options.log_dir);
}

TEST_F(SingleNode, ThreadsAreLeftAloneWhereTheyAreSet) {
  setenv("OMP_NUM_THREADS", "7", 1);
  const auto result = run({"-n", "2"}, "echo $OMP_NUM_THREADS");
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(result.out, "7\n");
}

TEST_F(SingleNode, CoresAreSharedOutOverTheRanks) {
  EXPECT_GE(default_num_threads(1), 1);
  EXPECT_EQ(default_num_threads(4096), 1);
  setenv("PIPEWRIGHT_CORES", "of an outer launcher", 1);
  ASSERT_EQ(run({"-n", "2", "--log-dir", "logs"}, "echo $PIPEWRIGHT_CORES").status, 0);
  unsetenv("PIPEWRIGHT_CORES");
  for (const int rank : {0, 1}) {
    const auto share = share_of_cores(usable_cores(), rank, 2);
    EXPECT_EQ(text(fmt::format("logs/rank-{}.log", rank)),
              fmt::format("{}\n", fmt::join(share, ",")));
  }
}

TEST_F(SingleNode, EveryRankSeesAllOfTheDevices) {
  ASSERT_EQ(run({"-n", "2", "--devices", "3,1", "--log-dir", "logs"}, "echo $CUDA_VISIBLE_DEVICES")
                .status,
            0);
  EXPECT_EQ(text("logs/rank-0.log"), "3,1\n");
  EXPECT_EQ(text("logs/rank-1.log"), "3,1\n");
}

TEST_F(SingleNode, AGivenMasterIsWhereTheRanksMeet) {
  const std::string port = std::to_string(some_free_port());
  const auto result =
      run({"-n", "1", "--master", "localhost:" + port}, "echo $MASTER_ADDR:$MASTER_PORT");
  EXPECT_EQ(result.out, "localhost:" + port + "\n");
}

TEST_F(SingleNode, RankZeroIsOnTheTerminalTheOthersInTheirFilesAlone) {
  const auto result = run({"-n", "2", "--log-dir", "logs"},
                          "echo out $RANK; echo err $RANK >&2; printf 'half a line'");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "out 0\nhalf a line");
  EXPECT_THAT(result.err, AllOf(HasSubstr("err 0\n"), Not(HasSubstr("err 1"))));
  EXPECT_THAT(result.err,
              HasSubstr("pipewright launch: ranks 0 to 1 of 2 started; logs in logs\n"));
  for (const char* word : {"out 1\n", "err 1\n", "half a line\n"})
    EXPECT_THAT(text("logs/rank-1.log"), HasSubstr(word));
  EXPECT_THAT(text("logs/rank-0.log"), AllOf(HasSubstr("out 0\n"), HasSubstr("half a line\n")));
}

TEST_F(SingleNode, OutputIsOnTheTerminalWhileTheRankRuns) {
  Launcher launcher(folder(), {"-n", "1"},
                    "printf 'no newline'; while [ ! -e go ]; do sleep 0.01; done");
  EXPECT_TRUE(eventually([&] { return launcher.out() == "no newline"; }, "the output"));
  std::filesystem::create_directory(folder() / "go");
  EXPECT_EQ(launcher.wait().status, 0);
}

TEST_F(SingleNode, LinesOfBothStreamsStayWhole) {
  const auto result =
      run({"-n", "2", "--log-dir", "logs"},
          "(i=0; while [ $i -lt 300 ]; do printf 'aaa'; printf 'bbb\\n'; i=$((i+1)); "
          "done) & (i=0; while [ $i -lt 300 ]; do printf 'ccc' >&2; printf 'ddd\\n' "
          ">&2; i=$((i+1)); done); wait");
  ASSERT_EQ(result.status, 0);
  std::istringstream lines(text("logs/rank-1.log"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_TRUE(line == "aaabbb" || line == "cccddd") << line;
  EXPECT_EQ(count, 600);
}

TEST_F(SingleNode, ManyBytesArriveInFull) {
  const auto result = run({"-n", "2", "--log-dir", "logs"}, "seq 200000");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.size(), 1288895U);
  EXPECT_EQ(text("logs/rank-0.log"), result.out);
  EXPECT_EQ(text("logs/rank-1.log"), result.out);
}

TEST_F(SingleNode, ThereIsNothingToRead) {
  EXPECT_EQ(run({"-n", "1"}, "cat; echo end").out, "end\n");
}

TEST_F(SingleNode, TheDefaultFolderForLogsIsNewAndNamed) {
  const auto first = run({"-n", "1"}, "echo one");
  const auto second = run({"-n", "1"}, "echo two");
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder() / "pipewright-logs")) {
    const std::string name = "pipewright-logs/" + entry.path().filename().string();
    EXPECT_TRUE(first.err.ends_with(name + "\n") || second.err.ends_with(name + "\n")) << name;
    ++folders;
  }
  EXPECT_EQ(folders, 2);
}

TEST_F(SingleNode, ALogOfAnEarlierRunIsKept) {
  run({"-n", "1", "--log-dir", "logs"}, "echo one");
  run({"-n", "1", "--log-dir", "logs"}, "echo two");
  EXPECT_THAT(text("logs/rank-0.log"),
              AllOf(StartsWith("one\n--- new run, "), HasSubstr("\ntwo\n")));
}

TEST_F(SingleNode, AFailedRankIsNamedWithItsStatusAndTheEndOfItsLog) {
  const auto result = run({"-n", "3", "--log-dir", "logs"},
                          "[ $RANK = 1 ] || exec sleep 1000; seq 30; printf 'last words'; exit 7");
  EXPECT_EQ(result.status, 7);
  std::string tail = "pipewright launch: the last 20 lines of logs/rank-1.log:\n";
  for (int i = 12; i <= 30; ++i) tail += fmt::format("    {}\n", i);
  tail += "    last words\n";
  EXPECT_THAT(result.err, HasSubstr("pipewright launch: rank 1 exited with status 7\n" + tail));
  EXPECT_THAT(result.err, HasSubstr("pipewright launch: stopped: rank 0, rank 2\n"));
}

TEST_F(SingleNode, ARankThatWroteNothingIsSaidTo) {
  const auto result = run({"-n", "1", "--log-dir", "logs"}, "exit 255");
  EXPECT_EQ(result.status, 255);
  EXPECT_THAT(result.err, HasSubstr("it wrote nothing to logs/rank-0.log"));
}

TEST_F(SingleNode, ASignalIsNamedAndPassedOnAsShellsDo) {
  const auto result = run({"-n", "2"}, "[ $RANK = 1 ] || exec sleep 1000; kill -9 $$");
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_THAT(result.err, HasSubstr("rank 1 was killed by signal 9 (SIGKILL)\n"));
}

TEST_F(SingleNode, WhatFailsForWantOfAnotherIsNotTheCause) {
  const auto result = run({"-n", "2"},
                          "if [ $RANK = 1 ]; then echo $$ > pid1; exit 3; fi; "
                          "while [ ! -s pid1 ] || kill -0 $(cat pid1) 2>/dev/null; do :; done; "
                          "kill -ABRT $$");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("rank 1 exited with status 3"));
  EXPECT_THAT(result.err, AnyOf(HasSubstr("also failed: rank 0 was killed by signal 6 (SIGABRT)"),
                                HasSubstr("stopped: rank 0")));  // where the machine is slow
}

TEST_F(SingleNode, ARankMayEndWellBeforeTheOthers) {
  Launcher launcher(folder(), {"-n", "2"},
                    "[ $RANK = 1 ] && echo $$ > first && exit 0; "
                    "while [ ! -e go ]; do sleep 0.01; done; echo done");
  const pid_t first = pid_in("first");
  EXPECT_TRUE(eventually([&] { return !is_alive(first); }, "rank 1 ends"));
  EXPECT_TRUE(is_alive(launcher.pid()));
  std::filesystem::create_directory(folder() / "go");
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "done\n");
}

TEST_F(SingleNode, RestartsCountAndTakeANewPort) {
  const auto result = run(
      {"-n", "2", "--max-restarts", "3", "--log-dir", "logs"},
      "echo count $TORCHELASTIC_RESTART_COUNT; echo $MASTER_PORT >> ports$RANK; "
      "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 0 ] && exec sleep 1000; exit 5");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "count 0\ncount 1\ncount 2\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("restart 1 of 3: ranks 0 to 1 of 2 started\n"),
                                HasSubstr("restart 2 of 3: "), Not(HasSubstr("restart 3"))));
  EXPECT_THAT(text("logs/rank-1.log"),
              AllOf(StartsWith("count 0\n--- restart 1 of 3, "), HasSubstr(" ---\ncount 1\n---")));
  std::istringstream ports(text("ports1"));
  std::string first;
  std::string second;
  ports >> first >> second;
  EXPECT_NE(first, second);
}

TEST_F(SingleNode, WhenRestartsAreUsedUpTheStatusIsPassedOn) {
  const auto result = run({"-n", "1", "--max-restarts", "2"}, "echo x >> runs; exit 9");
  EXPECT_EQ(result.status, 9);
  EXPECT_EQ(text("runs"), "x\nx\nx\n");
  EXPECT_THAT(result.err, HasSubstr("rank 0 exited with status 9; all 2 restarts are used up\n"));
}

TEST_F(SingleNode, AFullDiskForLogsIsToldAndTheRunGoesOn) {
  std::filesystem::create_directory(folder() / "logs");
  std::filesystem::create_symlink("/dev/full", folder() / "logs/rank-0.log");
  const auto result = run({"-n", "1", "--log-dir", "logs"}, "echo one; echo two");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "one\ntwo\n");
  EXPECT_THAT(result.err, HasSubstr("cannot write 'logs/rank-0.log': No space left on device"));
}

TEST_F(SingleNode, AFolderForLogsThatCannotBeIsRefused) {
  const auto result = run({"-n", "1", "--log-dir", "/dev/null/logs"}, "echo no");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("[--log-dir] cannot make the folder '/dev/null/logs': "));
}

TEST_F(SingleNode, AProgramThatIsNotThereOrCannotRunIsAnErrorAtOnce) {
  const auto missing = run({"-n", "2", "--max-restarts", "3", "--", "no-such-program"}, "");
  EXPECT_EQ(missing.status, 127);
  EXPECT_EQ(missing.err,
            "pipewright launch: [launch] cannot run 'no-such-program': No such file or directory; "
            "check its path\n");
  const auto no_program = run({"-n", "2", "--max-restarts", "3", "--", "/etc/passwd"}, "");
  EXPECT_EQ(no_program.status, 126);
  EXPECT_THAT(no_program.err, HasSubstr("cannot run '/etc/passwd': Permission denied; "));
  EXPECT_FALSE(std::filesystem::exists(folder() / "pipewright-logs")) << "nothing ran";
}

TEST_F(SingleNode, ArgumentsArriveAsTheyAre) {
  const auto result =
      run({"-n", "1", "--", "printf", "<%s>", "-n", "--help", "simulate", "", "a b", "--"}, "x");
  EXPECT_EQ(result.out, "<-n><--help><simulate><><a b><--><--></bin/sh><-c><x>");
}

TEST_F(SingleNode, TooFewDescriptorsAreAClearError) {
  const std::string command = "cd " + folder().string() +
                              " && ulimit -n 24 && " PIPEWRIGHT_PROGRAM
                              " launch -n 16 -- sleep 1000 2>err; echo $? > status";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(text("status"), "1\n");
  EXPECT_THAT(text("err"), HasSubstr("Too many open files; allow more open files (ulimit -n)"));
}

TEST_F(SingleNode, ClosedStandardStreamsDoNoHarm) {
  const std::string command =
      "cd " + folder().string() +
      " && " PIPEWRIGHT_PROGRAM
      " launch -n 2 --log-dir logs -- /bin/sh -c 'echo $RANK; exit 0' <&- >&- 2>&-";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(text("logs/rank-0.log") + text("logs/rank-1.log"), "0\n1\n");
}

TEST_F(SingleNode, AReaderThatWentAwayDoesNotEndTheRun) {
  const std::string command =
      "cd " + folder().string() +
      " && { " PIPEWRIGHT_PROGRAM
      " launch -n 1 --log-dir logs -- /bin/sh -c "
      "'seq 100000; sleep 0.1; echo end'; echo $? > status; } 2>/dev/null | "
      "head -n 1 >/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  ASSERT_TRUE(eventually_there("status"));
  EXPECT_EQ(text("status"), "0\n");
  EXPECT_THAT(text("logs/rank-0.log"), HasSubstr("\n100000\nend\n"));
}

}  // namespace
}  // namespace pipewright::launch
