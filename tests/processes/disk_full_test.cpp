// A disk that is full while a run saves: an error with the file, the old checkpoint whole, and the
// training goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/processes/worker.h"
#include "tests/train/checkpoint_models.h"

namespace pipewright {
namespace {

using testing_checkpoint::TempFolder;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// Files of this process may not grow beyond a page: as on a full disk, where nothing can be
/// mounted.
class ShortFiles {
 public:
  ShortFiles() {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now = {4096, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~ShortFiles() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  ShortFiles(const ShortFiles&) = delete;
  ShortFiles& operator=(const ShortFiles&) = delete;

 private:
  rlimit before_ = {};
};

/// Fills the disk with a file of its own, and takes it away again.
class FullDisk {
 public:
  explicit FullDisk(const std::string& dir) : path_(dir + "/ballast") {
    std::ofstream file(path_);
    while (file << std::string(4096, 'x') << std::flush) {
    }
  }
  ~FullDisk() { std::filesystem::remove(path_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  std::string path_;
};

std::string failure_of_save(Trainer* trainer, const std::string& dir) {
  try {
    trainer->save(dir);
    train(trainer, 4, 5);  // beside it
    trainer->wait_for_save();
  } catch (const StorageError& error) {
    return error.what();
  }
  return "no failure";
}

const Worker kSaveOnFullDisk("save_on_full_disk", [](const Arguments& a) {
  const std::string dir = a.at("dir");
  Trainer trainer(make_model(kAllFeatures), cross_entropy(), adam(), strategy_of(2, 4));
  train(&trainer, 0, 3);
  trainer.save(dir + "/runs", {.background = false});
  train(&trainer, 3, 4);
  {
    std::optional<FullDisk> full;
    std::optional<ShortFiles> short_files;
    if (a.at("how") == "disk") {
      full.emplace(dir);
    } else {
      short_files.emplace();
    }
    const std::string words = failure_of_save(&trainer, dir + "/runs");
    expect(words.find(a.at("words")) != std::string::npos, words);
    expect(words.find(dir + "/runs") != std::string::npos, "which file? " + words);
    const NewestWhole newest = newest_whole(dir + "/runs");
    expect(newest.checkpoint && newest.checkpoint->step() == 3, "the old one is lost");
    train(&trainer, 5, 6);
  }
  trainer.save(dir + "/runs", {.background = false});
  expect(newest_whole(dir + "/runs").checkpoint->step() == 6, "the new one is not there");
});

/// Runs what follows with a small disk of its own at `dir`.
std::vector<std::string> with_small_disk(const std::string& dir) {
  return {"unshare", "--map-root-user",
          "--mount", "sh",
          "-c",      "mount -t tmpfs -o size=2m pipewright " + dir + " && exec \"$0\" \"$@\""};
}

TEST(ShortFiles, AreToldByTheTrainerWhichThenGoesOn) {
  const TempFolder dir;
  Processes processes("save_on_full_disk", 1,
                      {{"dir", dir.path()}, {"how", "files"}, {"words", "File too large"}});
  processes.expect_success();
}

TEST(FullDisk, IsToldByTheTrainerWhichThenGoesOn) {
  const TempFolder dir;
  const std::string path = dir / "disk";
  std::filesystem::create_directory(path);
  const std::string allowed =
      "unshare --map-root-user --mount mount -t tmpfs -o size=2m pipewright " + path +
      " 2> /dev/null";
  if (std::system(allowed.c_str()) != 0) GTEST_SKIP() << "this machine does not let us mount";
  Processes processes("save_on_full_disk", 1,
                      {{"dir", path}, {"how", "disk"}, {"words", "No space left on device"}}, {},
                      {}, {{0, with_small_disk(path)}});
  processes.expect_success();
}

}  // namespace
}  // namespace pipewright
