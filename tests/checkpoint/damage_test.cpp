// Damaged checkpoints, thousands of them, the same ones every time: none is taken for whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "pipewright/base/file.h"
#include "pipewright/base/sha256.h"
#include "tests/checkpoint/sample.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;
using testing_checkpoint::read_tensor;
using testing_checkpoint::Sample;
using testing_checkpoint::TempFolder;

using Files = std::map<std::string, std::string>;

Files read_files(const std::string& folder) {
  Files files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_file(entry.path().string(), "test");
  }
  return files;
}

class Damage {
 public:
  /// `older`: the files of another checkpoint of the same run.
  Damage(std::string folder, const Files& files, const Files& older)
      : folder_(std::move(folder)), files_(files), older_(older) {
    for (const auto& [name, bytes] : files) names_.push_back(name);
  }

  /// Changes one or two files; returns what was done, for messages.
  std::string hurt() {
    const std::string& name = names_[below(names_.size())];
    switch (below(9)) {
      case 0: return change(name, "a bit flipped", &Damage::flip_bit);
      case 1: return change(name, "cut", &Damage::cut);
      case 2: return change(name, "appended to", &Damage::append);
      case 3: return change(name, "a number changed", &Damage::change_digit);
      case 4: return change(name, "a stretch of zeros", &Damage::zero);
      case 5: return change(name, "bytes moved", &Damage::move);
      case 6: return exchange(name);
      case 7: return take_older(name);
      default: return no_file(name);
    }
  }

  void heal() {
    for (const std::string& name : hurt_) {
      fs::remove_all(path(name));
      write_file(path(name), files_.at(name), "test");
    }
    hurt_.clear();
  }

  /// The bytes with one change, as hurt() makes them.
  std::string changed(const std::string& bytes) {
    std::string text = bytes;
    constexpr std::array kChanges = {&Damage::flip_bit,     &Damage::cut,  &Damage::append,
                                     &Damage::change_digit, &Damage::zero, &Damage::move};
    while (text == bytes) (this->*kChanges.at(below(kChanges.size())))(&text);
    return text;
  }

  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

 private:
  std::string path(const std::string& name) const { return in_folder(folder_, name); }

  void put(const std::string& name, const std::string& bytes) {
    write_file(path(name), bytes, "test");
    hurt_.push_back(name);
  }

  std::string change(const std::string& name, const std::string& words,
                     void (Damage::*how)(std::string*)) {
    std::string bytes = files_.at(name);
    while (bytes == files_.at(name)) (this->*how)(&bytes);
    put(name, bytes);
    return name + ": " + words;
  }

  void flip_bit(std::string* bytes) {
    char& c = (*bytes)[below(bytes->size())];
    c = static_cast<char>(static_cast<unsigned char>(c) ^ (1U << below(8)));
  }
  void cut(std::string* bytes) { bytes->resize(below(bytes->size())); }
  void append(std::string* bytes) {
    static constexpr std::string_view kTails = " \n{}\0";
    bytes->append(1 + below(16), kTails[below(kTails.size())]);
  }
  void change_digit(std::string* bytes) {
    std::size_t at = bytes->find_first_of("0123456789", below(bytes->size()));
    if (at == std::string::npos) at = 0;
    (*bytes)[at] = static_cast<char>('0' + below(10));
  }
  void zero(std::string* bytes) {
    const std::size_t at = below(bytes->size());
    bytes->replace(at, 1 + below(64),
                   std::string(std::min(below(64) + 1, bytes->size() - at), '\0'));
  }
  void move(std::string* bytes) {
    const std::string piece = bytes->substr(below(bytes->size()), 1 + below(16));
    bytes->erase(below(bytes->size()), piece.size());
    bytes->insert(below(bytes->size() + 1), piece);
  }

  std::string exchange(const std::string& name) {
    std::string other = name;
    while (other == name) other = names_[below(names_.size())];
    put(name, files_.at(other));
    put(other, files_.at(name));
    return name + ": exchanged with " + other;
  }

  std::string take_older(const std::string& name) {
    // The indexes of all checkpoints of a run are the same.
    if (older_.at(name) == files_.at(name)) return exchange(name);
    put(name, older_.at(name));
    return name + ": from an older checkpoint";
  }

  std::string no_file(const std::string& name) {
    fs::remove(path(name));
    hurt_.push_back(name);
    switch (below(3)) {
      case 0: return name + ": missing";
      case 1: fs::create_directory(path(name)); return name + ": a folder";
      default: fs::create_symlink("/dev/zero", path(name)); return name + ": a link";
    }
  }

  std::string folder_;
  const Files& files_;
  const Files& older_;
  std::vector<std::string> names_;
  std::vector<std::string> hurt_;
  std::mt19937 random_;  // as it is seeded by default: the same run every time
};

class DamagedCheckpoints : public testing::Test {
 protected:
  DamagedCheckpoints() {
    Sample(1).save(dir_ / "older", 4);
    sample_.save(dir_ / "run", 5);
    older_ = read_files(dir_ / "older/step-00000004");
    files_ = read_files(folder_);
  }

  TempFolder dir_;
  const std::string folder_ = dir_ / "run/step-00000005";
  const Sample sample_{2};
  Files older_;
  Files files_;
};

TEST_F(DamagedCheckpoints, NoneOfTenThousandIsTakenForWhole) {
  Damage damage(folder_, files_, older_);
  for (int i = 0; i < 10'000; ++i) {
    const std::string what = damage.hurt();
    const NewestWhole found = newest_whole(dir_ / "run");
    ASSERT_FALSE(found.checkpoint) << i << ": " << what;
    ASSERT_EQ(found.refused.size(), 1U) << what;
    ASSERT_THAT(found.refused[0].reason, testing::StartsWith("[checkpoint] ")) << what;
    damage.heal();
  }
  const NewestWhole found = newest_whole(dir_ / "run");
  ASSERT_TRUE(found.checkpoint);
  EXPECT_TRUE(sample_.is_in(*found.checkpoint));
}

/// Reads all there is, where it is accepted.
void read_all(const std::string& folder) {
  try {
    const Checkpoint checkpoint = open_checkpoint(folder);
    checkpoint.verify();
    for (const Part part : kAllParts) {
      for (const std::string& name : checkpoint.tensors(part).names()) {
        read_tensor(checkpoint.tensors(part), name);
      }
    }
  } catch (const InvalidArgument&) {
  }
}

// Whoever makes checksums that fit may have anything saved: but nothing crashes or escapes.
TEST_F(DamagedCheckpoints, WithForgedChecksumsTheyDoNoHarm) {
  Damage damage(folder_, files_, older_);
  const Manifest manifest = parse_manifest(files_.at("checkpoint.json"), "test");
  for (int i = 0; i < 3000; ++i) {
    Manifest forged = manifest;
    FileEntry& entry = forged.files[damage.below(forged.files.size())];
    const std::string bytes = damage.changed(files_.at(entry.file));
    write_file(in_folder(folder_, entry.file), bytes, "test");
    entry = {entry.file, std::ssize(bytes), sha256_hex(bytes)};
    write_file(in_folder(folder_, "checkpoint.json"), to_text(forged), "test");
    read_all(folder_);
    write_file(in_folder(folder_, entry.file), files_.at(entry.file), "test");
  }
  const std::string& text = files_.at("checkpoint.json");
  const std::string unsealed = text.substr(0, text.rfind("  \"sha256\""));
  for (int i = 0; i < 3000; ++i) {
    write_file(in_folder(folder_, "checkpoint.json"), sealed(damage.changed(unsealed)), "test");
    read_all(folder_);
  }
}

}  // namespace
}  // namespace pipewright
