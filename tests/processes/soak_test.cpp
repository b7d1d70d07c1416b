// Four processes, two pipelines of two, that train, evaluate, predict and save for a long time:
// nothing grows. PIPEWRIGHT_TEST_SOAK_STEPS makes it long; 2 x 10^5 steps take about half an hour
// on two cores.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/processes/worker.h"
#include "tests/train/checkpoint_models.h"

namespace pipewright {
namespace {

using testing_checkpoint::TempFolder;

constexpr int kSaveEvery = 20;
constexpr int kLooks = 10;  // at its resources, evenly over the run
/// Of resident memory, after the first third. What is left over is the C library's, whose arenas
/// fill up over time.
constexpr double kMostGrowthMib = 8;
/// Threads or files that are on their way out when a look is taken; what a save leaves behind each
/// time would be more.
constexpr int kMostTransient = 2;

struct Resources {
  int threads = 0;
  int files = 0;
  double resident_mib = 0;
};

Resources resources_now() {
  malloc_trim(0);  // what is free is not held
  Resources now;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "Threads:") status >> now.threads;
    if (word == "VmRSS:") status >> now.resident_mib;
  }
  now.resident_mib /= 1024;
  now.files = static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                             std::filesystem::directory_iterator()));
  return now;
}

void check_growth(const std::vector<Resources>& looks) {
  const Resources& before = looks[kLooks / 3];
  const Resources& after = looks.back();
  if (after.threads > before.threads + kMostTransient)
    throw std::runtime_error(fmt::format("{} threads, then {}", before.threads, after.threads));
  if (after.files > before.files + kMostTransient)
    throw std::runtime_error(fmt::format("{} open files, then {}", before.files, after.files));
  if (after.resident_mib > before.resident_mib + kMostGrowthMib) {
    throw std::runtime_error(
        fmt::format("{:.1f} MiB, then {:.1f}", before.resident_mib, after.resident_mib));
  }
}

const Worker kSoak("soak", [](const Arguments& a) {
  const int steps = std::stoi(a.at("steps"));
  Strategy strategy = strategy_of(2, 2);
  strategy.transport = "gloo";
  strategy.replicas = 2;
  strategy.recompute = RecomputeMode::kAll;
  strategy.clip_norm = 1;
  Trainer trainer(make_model(kAllFeatures), cross_entropy(), sgd(1e-3), strategy);
  std::vector<Resources> looks;
  std::ofstream log(result_folder() + "/soak." + std::getenv("RANK"));
  for (int step = 1; step <= steps; ++step) {
    const Batch batch = make_batch(11, step % 50, kAllFeatures);
    trainer.step(batch);
    if (step % kSaveEvery == 0) trainer.save(a.at("dir"), {.keep = 2});
    if (step % kSaveEvery == 5) trainer.evaluate(batch);
    if (step % kSaveEvery == 10) trainer.predict(batch.inputs);
    if (step % (steps / kLooks) != 0) continue;
    trainer.wait_for_save();
    looks.push_back(resources_now());
    const Resources& now = looks.back();
    log << fmt::format("step {}: {} threads, {} files, {:.1f} MiB\n", step, now.threads, now.files,
                       now.resident_mib)
        << std::flush;
  }
  check_growth(looks);
});

TEST(Soak, NothingGrows) {
  const char* asked = std::getenv("PIPEWRIGHT_TEST_SOAK_STEPS");
  const int steps = asked == nullptr ? 100 : std::stoi(asked);
  const TempFolder dir;
  Processes processes("soak", 4, {{"steps", std::to_string(steps)}, {"dir", dir / "runs"}});
  if (asked != nullptr) {
    while (processes.runs(0)) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  processes.expect_success();
  if (asked == nullptr) return;
  for (int rank = 0; rank < 4; ++rank) {
    std::ifstream log(processes.folder() + "/soak." + std::to_string(rank));
    std::cout << "rank " << rank << ":\n" << log.rdbuf();
  }
}

}  // namespace
}  // namespace pipewright
