// Folders of several checkpoints.
#include "pipewright/checkpoint/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "pipewright/base/file.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_checkpoint::Sample;
using testing_checkpoint::TempFolder;

std::vector<std::int64_t> steps(const std::string& dir) {
  std::vector<std::int64_t> steps;
  for (const SavedFolder& folder : list_checkpoints(dir).newest_first) steps.push_back(folder.step);
  return steps;
}

void damage(const std::string& checkpoint) {
  write_file(in_folder(checkpoint, "checkpoint.json"), "{}", "test");
}

TEST(Folders, AreOrderedAsNumbers) {
  const TempFolder dir;
  for (const std::int64_t step : {99'999'999L, 100'000'000L, 2L, 11L})
    Sample(step).save(dir.path(), step);
  EXPECT_THAT(steps(dir.path()), ElementsAre(100'000'000, 99'999'999, 11, 2));
  EXPECT_EQ(newest_whole(dir.path()).checkpoint->step(), 100'000'000);
}

TEST(Folders, TheNewestWholeOneIsFoundAndTheOthersReported) {
  const TempFolder dir;
  for (const int step : {1, 2, 3, 4}) Sample(step).save(dir.path(), step);
  damage(dir / "step-00000004");
  fs::resize_file(dir / "step-00000003/optimizer-00002-of-00002.safetensors", 9);
  const auto found = newest_whole(dir.path());
  EXPECT_TRUE(Sample(2).is_in(*found.checkpoint));
  ASSERT_EQ(found.refused.size(), 2U);
  EXPECT_EQ(found.refused[0].path, dir / "step-00000004");
  EXPECT_THAT(found.refused[0].reason, HasSubstr("does not end with its own checksum"));
  EXPECT_EQ(found.refused[1].path, dir / "step-00000003");
  EXPECT_THAT(found.refused[1].reason,
              HasSubstr("optimizer-00002-of-00002.safetensors' has 9 bytes"));
}

TEST(Folders, WhatIsNoCheckpointIsReportedOrLeftAlone) {
  const TempFolder dir;
  Sample(1).save(dir.path(), 1);
  fs::create_directory(dir / "step-7");
  write_file(dir / "step-00000008", "a file", "test");
  fs::create_directory_symlink(dir / "step-00000001", dir / "step-00000009");
  write_file(dir / "notes.txt", "", "test");
  const auto found = newest_whole(dir.path());
  EXPECT_EQ(found.checkpoint->step(), 1);
  std::vector<std::string> refused;
  for (const auto& each : found.refused) refused.push_back(each.path);
  EXPECT_THAT(refused, ElementsAre(dir / "step-00000008", dir / "step-00000009", dir / "step-7"));
  EXPECT_THAT(found.refused[0].reason, HasSubstr("no folder that a checkpoint is saved as"));
}

TEST(Folders, ThereMayBeNone) {
  const TempFolder dir;
  EXPECT_FALSE(newest_whole(dir.path()).checkpoint);
  EXPECT_FALSE(newest_whole(dir / "none").checkpoint);
  write_file(dir / "file", "", "test");
  EXPECT_THAT(refusal([&] { newest_whole(dir / "file"); }),
              HasSubstr("cannot read the folder '" + (dir / "file") + "': Not a directory"));
}

TEST(Prune, RemovesTheOldest) {
  const TempFolder dir;
  for (const int step : {9, 10, 100, 101}) Sample(step).save(dir.path(), step);
  EXPECT_THAT(prune_checkpoints(dir.path(), 2),
              ElementsAre(dir / "step-00000010", dir / "step-00000009"));
  EXPECT_THAT(steps(dir.path()), ElementsAre(101, 100));
  EXPECT_THAT(prune_checkpoints(dir.path(), 2), ElementsAre());
  EXPECT_THAT(prune_checkpoints(dir / "none", 2), ElementsAre());
  EXPECT_THAT(refusal([&] { prune_checkpoints(dir.path(), 0); }),
              HasSubstr("cannot keep 0 checkpoints; keep 1 or more"));
}

TEST(Prune, RemovesNothingWholeInFavourOfADamagedOne) {
  const TempFolder dir;
  for (const int step : {1, 2, 3, 4}) Sample(step).save(dir.path(), step);
  damage(dir / "step-00000004");
  damage(dir / "step-00000001");
  EXPECT_THAT(prune_checkpoints(dir.path(), 1),
              ElementsAre(dir / "step-00000002", dir / "step-00000001"));
  EXPECT_THAT(steps(dir.path()), ElementsAre(4, 3));
}

TEST(Prune, GoesOnWhereAKilledOneStopped) {
  const TempFolder dir;
  for (const int step : {1, 2}) Sample(step).save(dir.path(), step);
  fs::create_directories(dir / ".step-00000001.removing/half");
  prune_checkpoints(dir.path(), 1);
  EXPECT_THAT(steps(dir.path()), ElementsAre(2));
  EXPECT_FALSE(is_there(dir / ".step-00000001.removing"));
}

TEST(Tidy, RemovesWhatKilledWritersLeft) {
  const TempFolder dir;
  Sample(1).save(dir.path(), 1);
  for (const char* name :
       {".step-00000002.writing", ".step-00000001.removing", ".step-00000001.replaced"}) {
    fs::create_directories(dir / (std::string(name) + "/half"));
  }
  fs::create_directory(dir / ".other");
  EXPECT_THAT(tidy_checkpoints(dir.path()),
              ElementsAre(dir / ".step-00000001.removing", dir / ".step-00000001.replaced",
                          dir / ".step-00000002.writing"));
  EXPECT_TRUE(is_there(dir / ".other"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 2);
  EXPECT_TRUE(Sample(1).is_in(*newest_whole(dir.path()).checkpoint));
}

TEST(Tidy, PutsBackWhatWasNotReplacedInTheEnd) {
  const TempFolder dir;
  Sample(1).save(dir.path(), 1);
  Sample(2).save(dir.path(), 2);
  fs::rename(dir / "step-00000002", dir / ".step-00000002.replaced");
  EXPECT_TRUE(Sample(2).is_in(*newest_whole(dir.path()).checkpoint));
  EXPECT_THAT(tidy_checkpoints(dir.path()), ElementsAre(dir / ".step-00000002.replaced"));
  const auto found = newest_whole(dir.path());
  EXPECT_EQ(found.checkpoint->path(), dir / "step-00000002");
  EXPECT_TRUE(Sample(2).is_in(*found.checkpoint));
}

}  // namespace
}  // namespace pipewright
