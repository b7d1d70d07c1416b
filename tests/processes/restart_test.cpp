// Whatever is killed, whenever: the launcher starts the run again from its last whole checkpoint,
// and it ends with the weights of a run that nothing happened to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <thread>

#include "tests/processes/train_on.h"
#include "tests/processes/train_worker.h"
#include "tests/train/checkpoint_models.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_checkpoint::TempFolder;

constexpr int kRanks = 3;
constexpr int kSteps = 96;

std::unique_ptr<Trainer> make_trainer(const std::string& transport) {
  Strategy strategy = strategy_of(kRanks, 4);
  strategy.transport = transport;
  return std::make_unique<Trainer>(make_model(kAllFeatures), cross_entropy(), adam(), strategy);
}

TrainResult result_of(const Trainer& trainer) {
  TrainResult result;
  for (const auto& [name, tensor] : trainer.state_dict()) result[name] = tensor.clone();
  return result;
}

/// Saves after every step, so that it is nearly always saving.
const Worker kTrainThrough("train_through", [](const Arguments& a) {
  std::ofstream(result_folder() + "/pid." + std::getenv("RANK")) << getpid() << '\n';
  const auto trainer = make_trainer("gloo");
  const Resumed resumed = trainer->resume(a.at("dir"));
  if (!resumed.refused.empty()) throw std::runtime_error(resumed.refused.front().reason);
  for (int step = static_cast<int>(resumed.step); step < std::stoi(a.at("steps")); ++step) {
    trainer->step(make_batch(11, step, kAllFeatures));
    trainer->save(a.at("dir"), {.keep = 2});
  }
  trainer->wait_for_save();
  write_result(result_of(*trainer));
});

/// 0: not yet there.
pid_t pid_of(const Processes& processes, int rank) {
  std::ifstream file(processes.folder() + "/pid." + std::to_string(rank));
  pid_t pid = 0;
  char end = 0;
  return (file >> pid).get(end) && end == '\n' ? pid : 0;
}

bool any_file(const std::string& dir, const std::function<bool(const std::string&)>& wanted) {
  std::error_code gone;  // folders are renamed while they are looked at
  for (auto it = std::filesystem::directory_iterator(dir, gone);
       !gone && it != std::filesystem::directory_iterator(); it.increment(gone)) {
    if (wanted(it->path().filename().string())) return true;
  }
  return false;
}

bool is_whole(const std::string& name) { return name.starts_with("step-"); }
bool is_being_written(const std::string& name) { return name.ends_with(".writing"); }

/// At a random moment: of the training, or of a save.
void wait_for_moment(const std::string& when, const std::string& dir, std::mt19937* random) {
  eventually([&] { return any_file(dir, is_whole); }, "a checkpoint");
  if (when == "saving") {
    std::this_thread::sleep_for(std::chrono::milliseconds((*random)() % 300));
    while (!any_file(dir, is_being_written)) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 5000));
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 800000));
  }
}

int num_rounds() {
  const char* rounds = std::getenv("PIPEWRIGHT_TEST_ROUNDS");
  return rounds == nullptr ? 1 : std::stoi(rounds);
}

struct Moment {
  int victim = 0;
  std::string when;
};

class KilledAndRestarted : public testing::TestWithParam<Moment> {};

TEST_P(KilledAndRestarted, EndsWithTheWeightsOfAnUndisturbedRun) {
  const auto undisturbed = make_trainer("threads");
  train(undisturbed.get(), 0, kSteps);
  const TrainResult expected = result_of(*undisturbed);
  for (int round = 0; round < num_rounds(); ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    std::mt19937 random(static_cast<unsigned>(1000 * GetParam().victim + round));
    const TempFolder dir;
    std::filesystem::create_directory(dir / "runs");
    Processes processes(
        "train_through", 1, {{"dir", dir / "runs"}, {"steps", std::to_string(kSteps)}}, {}, {},
        {{0, {PIPEWRIGHT_PROGRAM, "launch", "-n", "3", "--max-restarts", "1", "--"}}});
    wait_for_moment(GetParam().when, dir / "runs", &random);
    const pid_t victim = pid_of(processes, GetParam().victim);
    ASSERT_GT(victim, 0);
    EXPECT_EQ(::kill(victim, SIGKILL), 0) << "it had ended before; give it more steps";
    ASSERT_EQ(processes.wait(0), 0) << processes.words(0);
    EXPECT_THAT(processes.words(0), HasSubstr("rank " + std::to_string(GetParam().victim)));
    EXPECT_NE(pid_of(processes, GetParam().victim), victim);
    std::set<std::string> seen;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const auto& [name, tensor] : read_result(processes, rank)) {
        seen.insert(name);
        EXPECT_TRUE(tensor.equal(expected.at(name))) << "rank " << rank << ": " << name;
      }
    }
    EXPECT_EQ(seen.size(), expected.size());
  }
}

std::vector<Moment> moments() {
  std::vector<Moment> all;
  for (const char* when : {"training", "saving"}) {
    for (int victim = 0; victim < kRanks; ++victim) all.push_back({victim, when});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Each, KilledAndRestarted, testing::ValuesIn(moments()),
                         [](const auto& test) {
                           return test.param.when + std::to_string(test.param.victim);
                         });

class KilledWhileSaving : public testing::TestWithParam<int> {};

/// Without a restart: the others end with words, and what was whole stays whole.
TEST_P(KilledWhileSaving, IsNamedByTheOthersAndLeavesAWholeCheckpoint) {
  double longest = 0;
  for (int round = 0; round < num_rounds(); ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    std::mt19937 random(static_cast<unsigned>(7000 + 100 * GetParam() + round));
    const TempFolder dir;
    std::filesystem::create_directory(dir / "runs");
    Processes processes("train_through", kRanks, {{"dir", dir / "runs"}, {"steps", "1000000"}});
    wait_for_moment("saving", dir / "runs", &random);
    const auto since = std::chrono::steady_clock::now();
    processes.signal(GetParam(), SIGKILL);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == GetParam()) continue;
      EXPECT_EQ(processes.wait(rank), 1);
      const std::string words = error_of(processes, rank);
      EXPECT_THAT(words, HasSubstr("[transport] rank " + std::to_string(GetParam())));
      EXPECT_THAT(words, HasSubstr("; rank " + std::to_string(rank) + " was waiting for "));
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - since;
    longest = std::max(longest, passed.count());
    const NewestWhole newest = newest_whole(dir / "runs");
    EXPECT_TRUE(newest.checkpoint);
    EXPECT_THAT(newest.refused, testing::IsEmpty());
  }
  if (num_rounds() > 1) std::cout << "longest of " << num_rounds() << ": " << longest << " s\n";
}

INSTANTIATE_TEST_SUITE_P(Each, KilledWhileSaving, testing::Range(0, kRanks));

}  // namespace
}  // namespace pipewright
