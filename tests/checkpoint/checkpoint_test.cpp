// Saving and reading back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "pipewright/base/file.h"
#include "pipewright/base/sha256.h"
#include "pipewright/checkpoint/reader.h"
#include "pipewright/checkpoint/writer.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_checkpoint::bytes_of;
using testing_checkpoint::in_child;
using testing_checkpoint::read_tensor;
using testing_checkpoint::Sample;
using testing_checkpoint::TempFolder;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Checkpoints, ReadBack) {
  const TempFolder dir;
  const Sample sample(1);
  sample.save(dir / "runs/a", 120);
  const Checkpoint checkpoint = open_checkpoint(dir / "runs/a/step-00000120");
  checkpoint.verify();
  EXPECT_EQ(checkpoint.step(), 120);
  EXPECT_TRUE(sample.is_in(checkpoint));
  EXPECT_FALSE(Sample(2).is_in(checkpoint));
  const TensorSet& weights = checkpoint.tensors(Part::kWeights);
  EXPECT_THAT(weights.names(), ElementsAre("model.embed.bias", "model.embed.weight",
                                           "model.head.bias", "model.head.weight"));
  EXPECT_EQ(weights.file_of("model.head.bias"), "model-00002-of-00002.safetensors");
  EXPECT_EQ(weights.find("model.head.bias").shape, (std::vector<std::int64_t>{2, 16}));
  EXPECT_TRUE(weights.contains("model.head.bias"));
  EXPECT_FALSE(weights.contains("optimizer.head.bias"));
}

TEST(Checkpoints, LieInTheLayoutOfHuggingFace) {
  const TempFolder dir;
  Sample(1).save(dir.path(), 3);
  EXPECT_THAT(names_in(dir.path()), ElementsAre("step-00000003"));
  EXPECT_THAT(
      names_in(dir / "step-00000003"),
      ElementsAre("checkpoint.json", "model-00001-of-00002.safetensors",
                  "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                  "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors",
                  "optimizer.safetensors.index.json"));
}

TEST(Checkpoints, TheSameIsSavedAsTheSameBytes) {
  const TempFolder dir;
  Sample(1).save(dir / "a", 3);
  Sample(1).save(dir / "b", 3);
  for (const std::string& name : names_in(dir / "a/step-00000003")) {
    EXPECT_EQ(read_file(dir / ("a/step-00000003/" + name), "test"),
              read_file(dir / ("b/step-00000003/" + name), "test"));
  }
}

TEST(Checkpoints, SeveralProcessesWriteOne) {
  const TempFolder dir;
  const Sample sample(5);
  const CheckpointWriter writer(dir.path(), 7);
  writer.begin();
  std::vector<FileRecord> records;
  for (const int group : {1, 0}) {
    // Each process hands its records over as text.
    const int status = in_child([&] {
      nlohmann::json sent;
      for (const Part part : kAllParts) {
        const auto& groups = part == Part::kWeights ? sample.weights() : sample.optimizer();
        sent.push_back(to_json(writer.write_group(part, group, 2, groups.at(group))));
      }
      write_file(dir / "records", sent.dump(), "test");
      return 0;
    });
    ASSERT_EQ(status, 0);
    for (const auto& json : nlohmann::json::parse(read_file(dir / "records", "test"))) {
      records.push_back(parse_file_record(json));
    }
  }
  EXPECT_FALSE(newest_whole(dir.path()).checkpoint);
  writer.commit(records, sample.state());
  const auto found = newest_whole(dir.path());
  ASSERT_TRUE(found.checkpoint);
  EXPECT_EQ(found.checkpoint->path(), writer.path());
  EXPECT_TRUE(sample.is_in(*found.checkpoint));
}

TEST(Checkpoints, SeveralThreadsWriteAndReadOne) {
  const TempFolder dir;
  constexpr int kGroups = 8;
  const std::string data(100'000, 'd');
  const CheckpointWriter writer(dir.path(), 1);
  writer.begin();
  std::vector<FileRecord> records(kGroups);
  const auto name = [](int i) { return "layer" + std::to_string(i); };
  const auto in_threads = [](auto call) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kGroups; ++i) threads.emplace_back(call, i);
    for (std::thread& thread : threads) thread.join();
  };
  in_threads([&](int i) {
    const std::vector<TensorView> tensors = {{name(i), DType::kU8, {100'000}, bytes_of(data)}};
    records.at(i) = writer.write_group(Part::kWeights, i, kGroups, tensors);
  });
  writer.commit(records, 0);
  const Checkpoint checkpoint = open_checkpoint(writer.path());
  std::vector<int> same(kGroups);
  in_threads([&](int i) {
    for (int j = 0; j < kGroups; ++j) {
      same.at(i) +=
          read_tensor(checkpoint.tensors(Part::kWeights), name((i + j) % kGroups)) == data ? 1 : 0;
    }
  });
  EXPECT_EQ(same, std::vector<int>(kGroups, kGroups));
}

TEST(Checkpoints, AGroupMayHaveNoTensorsAndAnOptimizerNoState) {
  const TempFolder dir;
  const std::vector<std::vector<TensorView>> weights = {{{"w", DType::kU8, {1}, bytes_of("x")}},
                                                        {}};
  save_checkpoint(dir.path(), 0, weights, {}, nullptr);
  const auto found = newest_whole(dir.path());
  ASSERT_TRUE(found.checkpoint);
  EXPECT_EQ(found.checkpoint->tensors(Part::kWeights).size(), 1U);
  EXPECT_EQ(found.checkpoint->tensors(Part::kOptimizer).size(), 0U);
  EXPECT_TRUE(found.checkpoint->state().is_null());
}

TEST(Checkpoints, AStepSavedOnceMoreIsReplaced) {
  const TempFolder dir;
  Sample(1).save(dir.path(), 5);
  Sample(2).save(dir.path(), 5);
  EXPECT_TRUE(Sample(2).is_in(*newest_whole(dir.path()).checkpoint));
  EXPECT_THAT(names_in(dir.path()), ElementsAre("step-00000005"));
}

TEST(Checkpoints, ADamagedOneIsReplacedToo) {
  const TempFolder dir;
  write_file(dir / "step-00000005", "a file in the way", "test");
  Sample(2).save(dir.path(), 5);
  EXPECT_TRUE(Sample(2).is_in(*newest_whole(dir.path()).checkpoint));
}

TEST(Checkpoints, ASaveThatCannotBeFinishedLeavesNothing) {
  const TempFolder dir;
  const Sample sample(1);
  const CheckpointWriter writer(dir.path(), 5);
  const auto begun_with = [&](std::size_t num_groups) {
    writer.begin();
    std::vector<FileRecord> records;
    for (std::size_t i = 0; i < num_groups; ++i) {
      records.push_back(
          writer.write_group(Part::kWeights, static_cast<int>(i), 2, sample.weights()[i]));
    }
    return records;
  };
  auto records = begun_with(1);
  EXPECT_THAT(refusal([&] { writer.commit(records, 0); }),
              HasSubstr("'model-00002-of-00002.safetensors' was not written"));
  EXPECT_THAT(names_in(dir.path()), ElementsAre());

  records = begun_with(2);
  fs::resize_file(dir / (".step-00000005.writing/" + records[0].file()), 20);
  EXPECT_THAT(refusal([&] { writer.commit(records, 0); }),
              HasSubstr("has 20 bytes, its writer wrote"));
  EXPECT_THAT(names_in(dir.path()), ElementsAre());

  records = begun_with(2);
  fs::remove(dir / (".step-00000005.writing/" + records[0].file()));
  EXPECT_THAT(refusal([&] { writer.commit(records, 0); }), HasSubstr("No such file"));

  records = begun_with(0);
  EXPECT_THAT(refusal([&] { writer.commit(records, 0); }), HasSubstr("without weights"));

  records = begun_with(1);
  EXPECT_THAT(refusal([&] { writer.write_group(Part::kWeights, 0, 2, {}); }),
              HasSubstr("File exists"));
  writer.abandon();
  EXPECT_THAT(names_in(dir.path()), ElementsAre());
  EXPECT_THAT(refusal([&] { CheckpointWriter(dir.path(), -1); }), HasSubstr("cannot save step -1"));
}

TEST(Checkpoints, WhatAnotherWriterLeftIsBegunAnew) {
  const TempFolder dir;
  fs::create_directories(dir / ".step-00000005.writing/folder");
  write_file(dir / ".step-00000005.writing/model-00001-of-00002.safetensors", "half", "test");
  Sample(1).save(dir.path(), 5);
  EXPECT_TRUE(Sample(1).is_in(*newest_whole(dir.path()).checkpoint));
}

class OpenedCheckpoint : public testing::Test {
 protected:
  OpenedCheckpoint() { sample_.save(dir_.path(), 5); }

  std::string file(const std::string& name) const { return dir_ / ("step-00000005/" + name); }
  std::string words() const {
    return refusal([&] { open_checkpoint(file("")).verify(); });
  }

  /// Changes checkpoint.json and gives it the checksum that fits.
  void forge(const std::function<void(Manifest*)>& change) const {
    Manifest manifest = parse_manifest(read_file(file("checkpoint.json"), "test"), "test");
    change(&manifest);
    write_file(file("checkpoint.json"), to_text(manifest), "test");
  }

  /// Changes a file and gives it, in checkpoint.json, the size and checksum that fit.
  void forge_file(const std::string& name, const std::string& contents) const {
    write_file(file(name), contents, "test");
    forge([&](Manifest* manifest) {
      for (FileEntry& entry : manifest->files) {
        if (entry.file == name) {
          entry = {name, std::ssize(contents), sha256_hex(contents)};
        }
      }
    });
  }

  static constexpr const char* kFirst = "model-00001-of-00002.safetensors";
  static constexpr const char* kIndex = "model.safetensors.index.json";
  TempFolder dir_;
  Sample sample_{1};
};

TEST_F(OpenedCheckpoint, AnAlteredFileIsRefusedByNameAtItsFirstUse) {
  std::string bytes = read_file(file(kFirst), "test");
  bytes.back() ^= 1;
  write_file(file(kFirst), bytes, "test");
  const Checkpoint checkpoint = open_checkpoint(file(""));
  const TensorSet& weights = checkpoint.tensors(Part::kWeights);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(refusal([&] { read_tensor(weights, "model.embed.bias"); }),
                HasSubstr(std::string(kFirst) + "' is not as it was written: its SHA-256 is "));
  }
  EXPECT_NO_THROW(read_tensor(weights, "model.head.bias"));
  EXPECT_THAT(refusal([&] { checkpoint.verify(); }), HasSubstr(kFirst));
  EXPECT_THAT(refusal([&] { checkpoint.verify({kFirst}); }), HasSubstr(kFirst));
  EXPECT_NO_THROW(checkpoint.verify({kIndex, "model-00002-of-00002.safetensors"}));
  EXPECT_THAT(refusal([&] { checkpoint.verify({"other"}); }),
              HasSubstr("does not have the file 'other'"));
}

TEST_F(OpenedCheckpoint, FilesOfAnotherSizeMissingOrNoFilesAreRefused) {
  fs::resize_file(file(kFirst), 50);
  EXPECT_THAT(words(), HasSubstr(std::string(kFirst) + "' has 50 bytes, it was written with "));
  fs::remove(file(kFirst));
  EXPECT_THAT(words(), HasSubstr(std::string(kFirst) + "': No such file or directory"));
  fs::create_directory(file(kFirst));
  EXPECT_THAT(words(), HasSubstr("it is no regular file"));
  fs::remove(file("checkpoint.json"));
  EXPECT_THAT(words(), HasSubstr("checkpoint.json': No such file or directory"));
  EXPECT_THAT(refusal([&] { open_checkpoint(dir_ / "none"); }), HasSubstr("No such file"));
}

TEST_F(OpenedCheckpoint, LinksAreRefused) {
  fs::rename(file(kFirst), dir_ / "elsewhere");
  fs::create_symlink(dir_ / "elsewhere", file(kFirst));
  EXPECT_THAT(words(), HasSubstr("it is a link"));
}

TEST_F(OpenedCheckpoint, ARenamedOneIsRefused) {
  fs::rename(file(""), dir_ / "step-00000006");
  EXPECT_THAT(refusal([&] { open_checkpoint(dir_ / "step-00000006"); }),
              HasSubstr("is of step 5 by its checkpoint.json; was it renamed?"));
  fs::rename(dir_ / "step-00000006", dir_ / "best");
  EXPECT_TRUE(sample_.is_in(open_checkpoint(dir_ / "best")));
}

TEST_F(OpenedCheckpoint, AnAlteredIndexIsRefused) {
  std::string text = read_file(file(kIndex), "test");
  text[5] ^= 1;
  write_file(file(kIndex), text, "test");
  EXPECT_THAT(words(), HasSubstr(std::string(kIndex) + "' is not as it was written"));
}

TEST_F(OpenedCheckpoint, ForgedChecksumsDoNotHideWhatDoesNotFit) {
  const std::string index = read_file(file(kIndex), "test");
  const auto with = [&](const std::function<void(nlohmann::json*)>& change) {
    nlohmann::json json = nlohmann::json::parse(index);
    change(&json);
    forge_file(kIndex, json.dump());
    return words();
  };
  EXPECT_EQ(with([](auto*) {}), "accepted");
  EXPECT_THAT(with([](auto* j) { (*j)["weight_map"]["x"] = kFirst; }),
              HasSubstr("tensor 'x' is not in '"));
  EXPECT_THAT(with([](auto* j) { (*j)["weight_map"].erase("model.embed.bias"); }),
              HasSubstr("tensor 'model.embed.bias' is in '"));
  EXPECT_THAT(with([](auto* j) { (*j)["weight_map"]["x"] = "other.safetensors"; }),
              HasSubstr("in the file 'other.safetensors', which checkpoint.json does not have"));
  EXPECT_THAT(with([](auto* j) { (*j)["weight_map"]["x"] = "../../etc/passwd"; }),
              HasSubstr("no name of a file beside it"));
  EXPECT_THAT(with([](auto* j) { (*j)["metadata"]["total_size"] = 1; }),
              HasSubstr("have 128 bytes, by the index 1"));
  EXPECT_THAT(with([](auto* j) { j->erase("metadata"); }), HasSubstr("metadata.total_size"));
  forge_file(kIndex, index);
  forge_file(kFirst, "no safetensors");
  EXPECT_THAT(words(), HasSubstr("is no whole safetensors file"));
  forge([](Manifest* manifest) {
    std::erase_if(manifest->files, [](const FileEntry& e) { return e.file == kIndex; });
  });
  EXPECT_THAT(words(), HasSubstr("does not have the file 'model.safetensors.index.json'"));
}

TEST_F(OpenedCheckpoint, ATensorThatIsNotThereIsNamed) {
  const Checkpoint checkpoint = open_checkpoint(file(""));
  EXPECT_THAT(refusal([&] { read_tensor(checkpoint.tensors(Part::kWeights), "other"); }),
              HasSubstr("has no tensor 'other' among its 4; is it of another model?"));
  std::vector<std::byte> room(3);
  EXPECT_THAT(refusal([&] { checkpoint.tensors(Part::kWeights).read("model.head.bias", room); }),
              HasSubstr("has 32 bytes, room is for 3"));
}

TEST_F(OpenedCheckpoint, AFileThatChangesAfterwardsIsRefused) {
  const Checkpoint checkpoint = open_checkpoint(file(""));
  checkpoint.verify();
  fs::resize_file(file(kFirst), 50);
  EXPECT_THAT(refusal([&] { read_tensor(checkpoint.tensors(Part::kWeights), "model.embed.bias"); }),
              HasSubstr("changed while it was read"));
}

TEST_F(OpenedCheckpoint, ItsWeightsOpenWithoutTheRest) {
  fs::remove(file("checkpoint.json"));
  EXPECT_EQ(open_weights(file("")).size(), 4U);
  const TensorSet one = open_weights(file(kFirst));
  EXPECT_EQ(one.size(), 2U);
  EXPECT_EQ(read_tensor(one, "model.embed.bias").size(), 32U);
}

TEST(Weights, OpenAsHuggingFaceLaysThemOut) {
  const TempFolder dir;
  EXPECT_THAT(refusal([&] { open_weights(dir.path()); }),
              HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
  EXPECT_THAT(refusal([&] { open_weights(dir / "none"); }), HasSubstr("No such file"));
  // Its cache is made of links.
  const std::vector<TensorView> tensors = {{"w", DType::kU8, {1}, bytes_of("x")}};
  write_safetensors(dir / "blob", tensors);
  fs::create_directory(dir / "model");
  fs::create_symlink("../blob", dir / "model/model.safetensors");
  EXPECT_EQ(read_tensor(open_weights(dir / "model"), "w"), "x");
}

}  // namespace
}  // namespace pipewright
