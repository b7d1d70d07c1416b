// Disks that refuse: full, read-only, not ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "pipewright/base/file.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_checkpoint::in_child;
using testing_checkpoint::Sample;
using testing_checkpoint::TempFolder;

constexpr int kSaved = 0;
constexpr int kRefused = 1;
constexpr int kWrong = 2;
constexpr int kNotAllowed = 77;

/// Saves step 2 and tells how that went: refused as it should be is with a StorageError that names
/// a file of the checkpoint and this reason, nothing left of the new one and the old one whole.
int save_second(const std::string& dir, const Sample& second, const std::string& reason) {
  try {
    second.save(dir, 2);
    const auto found = newest_whole(dir);
    return found.checkpoint && second.is_in(*found.checkpoint) ? kSaved : kWrong;
  } catch (const StorageError& error) {
    const std::string words = error.what();
    const bool is_clear = words.find(".step-00000002.writing") != std::string::npos &&
                          words.find(reason) != std::string::npos;
    const bool is_clean = !is_there(in_folder(dir, ".step-00000002.writing"));
    const auto found = newest_whole(dir);
    const bool is_whole = found.checkpoint && Sample(1).is_in(*found.checkpoint);
    return is_clear && is_clean && is_whole && found.refused.empty() ? kRefused : kWrong;
  }
}

TEST(FullDisk, AtEveryByteOfAFileLeavesTheOldCheckpointWhole) {
  const TempFolder dir;
  Sample(1).save(dir.path(), 1);
  const auto largest = fs::file_size(dir / "step-00000001/checkpoint.json");
  int num_refused = 0;
  for (rlim_t limit = 0; limit < largest; limit += 7) {
    const int result = in_child([&] {
      // Instead of the signal: write() fails as it does on a full disk.
      if (std::signal(SIGXFSZ, SIG_IGN) == SIG_ERR) return kNotAllowed;
      const rlimit bound{limit, limit};
      if (setrlimit(RLIMIT_FSIZE, &bound) != 0) return kNotAllowed;
      return save_second(dir.path(), Sample(2), "File too large");
    });
    ASSERT_EQ(result, kRefused) << "with files of at most " << limit << " bytes";
    ++num_refused;
  }
  EXPECT_GT(num_refused, 100);
  EXPECT_EQ(save_second(dir.path(), Sample(2), ""), kSaved);
}

/// Where we are not root: a name space of users in which we are.
bool become_root() {
  const std::string user = "0 " + std::to_string(geteuid()) + " 1";
  const std::string group = "0 " + std::to_string(getegid()) + " 1";
  if (unshare(CLONE_NEWUSER) != 0) return false;
  write_file("/proc/self/setgroups", "deny", "test");
  write_file("/proc/self/uid_map", user, "test");
  write_file("/proc/self/gid_map", group, "test");
  return true;
}

/// In a process of its own: a small file system of its own at `dir`.
bool mount_small(const std::string& dir, const std::string& size) {
  if (geteuid() != 0 && !become_root()) return false;
  if (unshare(CLONE_NEWNS) != 0) return false;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return mount("pipewright", dir.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

TEST(FullDisk, IsReportedWithTheFileAndTheOldCheckpointStays) {
  const TempFolder dir;
  int num_refused = 0;
  for (int pages = 24; pages <= 64; pages += 4) {
    const int result = in_child([&] {
      if (!mount_small(dir.path(), std::to_string(pages * 4) + "k")) return kNotAllowed;
      Sample(1).save(dir.path(), 1);
      return save_second(dir.path(), Sample(2, 10'000), "No space left on device");
    });
    if (result == kNotAllowed) GTEST_SKIP() << "this machine does not let us mount";
    ASSERT_TRUE(result == kRefused || result == kSaved) << pages << " pages: " << result;
    if (result == kRefused) ++num_refused;
  }
  EXPECT_GT(num_refused, 2);
}

TEST(ReadOnlyDisk, IsReportedAndTheOldCheckpointReads) {
  const TempFolder dir;
  const int result = in_child([&] {
    if (!mount_small(dir.path(), "1m")) return kNotAllowed;
    Sample(1).save(dir.path(), 1);
    if (mount(nullptr, dir.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return kNotAllowed;
    }
    return save_second(dir.path(), Sample(2), "Read-only file system");
  });
  if (result == kNotAllowed) GTEST_SKIP() << "this machine does not let us mount";
  EXPECT_EQ(result, kRefused);
}

TEST(FolderOfOthers, IsReported) {
  const TempFolder dir;
  Sample(1).save(dir.path(), 1);
  fs::permissions(dir.path(), fs::perms(0555));
  const int result = in_child([&] {
    // To root nothing is forbidden.
    if (geteuid() == 0 && setuid(65534) != 0) return kNotAllowed;
    return save_second(dir.path(), Sample(2), "Permission denied");
  });
  fs::permissions(dir.path(), fs::perms::owner_all);
  if (result == kNotAllowed) GTEST_SKIP() << "root may not become another user here";
  EXPECT_EQ(result, kRefused);
}

TEST(FileInTheWay, IsReported) {
  const TempFolder dir;
  write_file(dir / "file", "", "test");
  EXPECT_THAT(refusal([&] { Sample(1).save(dir / "file", 1); }),
              HasSubstr("cannot make the folder '" + (dir / "file") + "': File exists"));
  EXPECT_THAT(refusal([&] { Sample(1).save(dir / "file/run", 1); }),
              HasSubstr("'" + (dir / "file")));
}

}  // namespace
}  // namespace pipewright
