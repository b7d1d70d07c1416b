// Promise 7 over processes: what some number of them saved any other number continues, bit for bit;
// where one of them cannot write, all are told and nothing is lost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/processes/worker.h"
#include "tests/train/checkpoint_models.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing_checkpoint::TempFolder;

constexpr int kHalf = 3;
constexpr int kAll = 6;
constexpr Features kFeatures = kAllFeatures;

Strategy strategy_for(int ranks, const std::string& transport) {
  Strategy strategy = strategy_of(ranks, 4);
  strategy.transport = transport;
  strategy.merge_steps = 2;
  strategy.clip_norm = 0.5;
  strategy.scale_loss = true;
  return strategy;
}

/// Steps up to `last`, after those of the newest checkpoint in `dir`, which there may be; then
/// saves.
void train_and_save(const std::string& dir, int ranks, const std::string& transport, int last) {
  Trainer trainer(make_other_model(kFeatures, torch::kFloat32), cross_entropy(), adam(),
                  strategy_for(ranks, transport));
  const Resumed resumed = trainer.resume(dir);
  const int next = resumed ? resumed.state.at("next").get<int>() : 0;
  train(&trainer, next, last, kFeatures);
  trainer.save(dir, {.keep = 2, .state = {{"next", last}}});
  train(&trainer, last, last + 1, kFeatures);  // while it is being written
  trainer.wait_for_save();
}

const Worker kTrainAndSave("train_and_save", [](const Arguments& a) {
  train_and_save(a.at("dir"), std::stoi(std::getenv("WORLD_SIZE")), "gloo",
                 std::stoi(a.at("last")));
});

/// By so many processes; 1: by this one.
void run(int processes, const std::string& dir, int last) {
  if (processes == 1) return train_and_save(dir, 2, "threads", last);
  Processes workers("train_and_save", processes, {{"dir", dir}, {"last", std::to_string(last)}});
  workers.expect_success();
}

TEST(ProcessCheckpoints, AnyNumberOfProcessesContinueWhatAnyOtherSaved) {
  const TempFolder dir;
  run(1, dir / "expected", kAll);
  const auto expected_half = [&] {
    run(1, dir / "half", kHalf);
    return files_of(dir / "half/step-00000003");
  }();
  const auto expected = files_of(dir / "expected/step-00000006");
  for (const auto& [before, after] : {std::pair{2, 1}, {2, 3}, {3, 2}, {1, 4}, {4, 2}}) {
    SCOPED_TRACE(testing::Message() << before << " processes, then " << after);
    const std::string runs = dir / ("runs" + std::to_string(10 * before + after));
    run(before, runs, kHalf);
    if (HasFailure()) return;
    EXPECT_EQ(files_of(runs + "/step-00000003"), expected_half) << "the files of one process";
    run(after, runs, kAll);
    if (HasFailure()) return;
    EXPECT_EQ(files_of(runs + "/step-00000006"), expected);
  }
}

const Worker kOneCannotWrite("one_cannot_write", [](const Arguments& a) {
  const int ranks = std::stoi(std::getenv("WORLD_SIZE"));
  const bool cannot = std::getenv("RANK") == a.at("who");
  Trainer trainer(make_model({}), cross_entropy(), sgd(), strategy_for(ranks, "gloo"));
  train(&trainer, 0, 2, {});
  trainer.save(a.at("dir"), {.background = false});
  train(&trainer, 2, 4, {});
  trainer.save(cannot ? a.at("blocked") : a.at("dir"));
  train(&trainer, 4, 5, {});  // training goes on meanwhile
  try {
    trainer.wait_for_save();
    throw std::runtime_error("the failure is lost");
  } catch (const Error& error) {
    std::ofstream(result_folder() + "/words" + std::getenv("RANK")) << error.what();
  }
  if (newest_whole(a.at("dir")).checkpoint->step() != 2) throw std::runtime_error("half saved");
  train(&trainer, 5, 6, {});
  trainer.save(a.at("dir"), {.background = false});
});

std::string read_words(const Processes& processes, int rank) {
  std::ifstream file(processes.folder() + "/words" + std::to_string(rank));
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ProcessCheckpoints, WhereOneCannotWriteAllAreToldAndTheOldOneStays) {
  for (const int who : {0, 1, 2}) {
    SCOPED_TRACE(testing::Message() << "rank " << who);
    const TempFolder dir;
    std::ofstream(dir / "file") << "x";
    Processes processes(
        "one_cannot_write", 3,
        {{"who", std::to_string(who)}, {"dir", dir / "runs"}, {"blocked", dir / "file/runs"}});
    processes.expect_success();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_THAT(read_words(processes, rank), HasSubstr("/file"));
      if (rank == who) continue;
      EXPECT_THAT(read_words(processes, rank),
                  HasSubstr("rank " + std::to_string(who) + " failed"));
    }
    const NewestWhole newest = newest_whole(dir / "runs");
    ASSERT_TRUE(newest.checkpoint);
    EXPECT_EQ(newest.checkpoint->step(), 6);
    EXPECT_THAT(newest.refused, IsEmpty());
  }
}

const Worker kOneDoesNotSave("one_does_not_save", [](const Arguments& a) {
  Strategy strategy = strategy_for(2, "gloo");
  strategy.deadline_seconds = 1;
  Trainer trainer(make_model({}), cross_entropy(), sgd(), strategy);
  if (std::getenv("RANK") == std::string("1")) {
    while (!std::ifstream(result_folder() + "/words0")) usleep(10'000);
    return;
  }
  trainer.save(a.at("dir"));
  try {
    trainer.wait_for_save();
  } catch (const TransportError& error) {
    std::ofstream(result_folder() + "/words") << error.what();
  }
  std::filesystem::rename(result_folder() + "/words", result_folder() + "/words0");
});

TEST(ProcessCheckpoints, AProcessThatDoesNotSaveIsNamedAtTheDeadline) {
  const TempFolder dir;
  Processes processes("one_does_not_save", 2, {{"dir", dir.path()}});
  processes.expect_success();
  EXPECT_THAT(read_words(processes, 0), HasSubstr("rank 0 waited 1 s for"));
  EXPECT_THAT(read_words(processes, 0), HasSubstr("of rank 1; see why in its log"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "nothing is left";
}

const Worker kWeights("weights", [](const Arguments& a) {
  const int ranks = std::stoi(std::getenv("WORLD_SIZE"));
  Trainer trainer(make_other_model(kFeatures, torch::kFloat32), cross_entropy(), sgd(),
                  strategy_for(ranks, "gloo"));
  trainer.load_weights(a.at("from"));
  trainer.save_weights(a.at("to"));
  try {
    trainer.save_weights(a.at("to") + ".safetensors");
    throw std::runtime_error("accepted");
  } catch (const InvalidArgument& error) {
    std::ofstream(result_folder() + "/words" + std::getenv("RANK")) << error.what();
  }
});

TEST(ProcessCheckpoints, WeightsGoThereAndBack) {
  const TempFolder dir;
  Trainer trainer(make_model_of(kFeatures, torch::kFloat32), cross_entropy(), sgd(),
                  strategy_for(2, "threads"));
  train(&trainer, 0, 2, kFeatures);
  trainer.save_weights(dir / "model.safetensors");
  Processes processes("weights", 3, {{"from", dir / "model.safetensors"}, {"to", dir / "out"}});
  processes.expect_success();
  EXPECT_THAT(read_words(processes, 1), HasSubstr("3 processes hold the weights; name a folder"));
  Trainer other(make_other_model(kFeatures, torch::kFloat32), cross_entropy(), sgd(),
                strategy_for(1, "threads"));
  other.load_weights(dir / "out");
  EXPECT_THAT(different(other, state_of(trainer)), IsEmpty());
}

/// What is refused at once takes nothing from those who are not yet done with what came before.
const Worker kRefusedInTurn("refused_in_turn", [](const Arguments& a) {
  const int ranks = std::stoi(std::getenv("WORLD_SIZE"));
  Trainer trainer(make_other_model(kFeatures, torch::kFloat32), cross_entropy(), sgd(),
                  strategy_for(ranks, "gloo"));
  for (int i = 0; i < 30; ++i) {
    trainer.save_weights(a.at("to") + std::to_string(i));
    try {
      trainer.save_weights(a.at("to") + ".safetensors");
      throw std::runtime_error("accepted");
    } catch (const InvalidArgument&) {
    }
  }
});

TEST(ProcessCheckpoints, WhatIsRefusedDisturbsNobody) {
  const TempFolder dir;
  Processes processes("refused_in_turn", 3, {{"to", dir / "out"}});
  processes.expect_success();
}

const Worker kDoesNotFit("does_not_fit", [](const Arguments& a) {
  const int ranks = std::stoi(std::getenv("WORLD_SIZE"));
  Trainer trainer(make_model({.skips = true}), cross_entropy(), sgd(), strategy_for(ranks, "gloo"));
  try {
    trainer.resume(a.at("dir"));
    throw std::runtime_error("accepted");
  } catch (const InvalidArgument& error) {
    std::ofstream(result_folder() + "/words" + std::getenv("RANK")) << error.what();
  }
  train(&trainer, 0, 2, {.skips = true});
});

TEST(ProcessCheckpoints, AllAreToldAllThatDoesNotFit) {
  const TempFolder dir;
  Trainer trainer(make_model({.batch_norm = true}), cross_entropy(), sgd(),
                  strategy_for(2, "threads"));
  trainer.save(dir.path(), {.background = false});
  Processes processes("does_not_fit", 2, {{"dir", dir.path()}});
  processes.expect_success();
  EXPECT_THAT(read_words(processes, 0), HasSubstr("missing: join_a.linear.bias, "));
  EXPECT_THAT(read_words(processes, 0), HasSubstr("twin2.linear.weight"));
  EXPECT_THAT(read_words(processes, 0), HasSubstr("unexpected: 'norm.bias', "));
  EXPECT_EQ(read_words(processes, 1), read_words(processes, 0));
}

}  // namespace
}  // namespace pipewright
