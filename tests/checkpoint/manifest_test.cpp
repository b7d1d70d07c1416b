#include "pipewright/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "pipewright/base/sha256.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string& digest() {
  static const std::string kDigest = sha256_hex("abc");
  return kDigest;
}

FileRecord record(Part part, int group, int num_groups, std::vector<std::string> tensors) {
  return {part, group, num_groups, 100, 40, digest(), std::move(tensors)};
}

Manifest sample() {
  return {120,
          {{"seed", 1}, {"lr", 0.1}, {"text", "день"}, {"list", {1, nullptr, true}}},
          {{"model-00001-of-00001.safetensors", 100, digest()}, {"index.json", 5, digest()}}};
}

TEST(Layout, FilesAndFoldersHaveTheseNames) {
  EXPECT_EQ(group_file(Part::kWeights, 2, 17), "model-00003-of-00017.safetensors");
  EXPECT_EQ(index_file(Part::kOptimizer), "optimizer.safetensors.index.json");
  EXPECT_EQ(step_folder(120), "step-00000120");
  EXPECT_EQ(parse_step_folder("step-00000120"), 120);
  EXPECT_EQ(parse_step_folder(step_folder(INT64_MAX)), INT64_MAX);
  for (const char* name : {"step-120", "step-000000120", "step-", "step--0000120", "step-0000012x",
                           "Step-00000120", "step-99999999999999999999", "step-00000120/"}) {
    EXPECT_EQ(parse_step_folder(name), std::nullopt) << name;
  }
}

TEST(Layout, FilesStayInTheirFolder) {
  EXPECT_TRUE(is_plain_file_name("model-00001-of-00002.safetensors"));
  for (const std::string name :
       {"", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", ".hidden", "a b", "a\n", "é"}) {
    EXPECT_FALSE(is_plain_file_name(name)) << name;
  }
  EXPECT_FALSE(is_plain_file_name(std::string(256, 'a')));
  EXPECT_FALSE(is_plain_file_name(std::string_view("a\0b", 3)));
}

TEST(FileRecords, TravelAsJson) {
  const FileRecord sent = record(Part::kOptimizer, 2, 3, {"a", "день"});
  EXPECT_EQ(parse_file_record(json::parse(to_json(sent).dump())), sent);
  EXPECT_EQ(sent.file(), "optimizer-00003-of-00003.safetensors");
}

TEST(FileRecords, WrongMembersAreRefused) {
  const auto with = [](const std::string& name, const json& value) {
    json changed = to_json(record(Part::kWeights, 0, 2, {"a"}));
    changed[name] = value;
    return refusal([&] { parse_file_record(changed); });
  };
  EXPECT_THAT(with("part", "other"), HasSubstr("part is 'other'; known are model, optimizer"));
  EXPECT_THAT(with("group", 2), HasSubstr("group is not a whole number from 0 to 1"));
  EXPECT_THAT(with("num_groups", 0), HasSubstr("num_groups is not a whole number from 1 to 99999"));
  EXPECT_THAT(with("bytes", -1), HasSubstr("bytes is not a whole number"));
  EXPECT_THAT(with("tensor_bytes", 101), HasSubstr("tensor_bytes is not a whole number"));
  EXPECT_THAT(with("sha256", "ABC"), HasSubstr("sha256 is 'ABC', not 64 digits of 0-9a-f"));
  EXPECT_THAT(with("tensors", {1}), HasSubstr("tensors[0] is number, not a string"));
  EXPECT_THAT(with("more", 1), HasSubstr("more is no member there"));
  EXPECT_THAT(refusal([] { parse_file_record(json::array()); }), HasSubstr("is array"));
}

TEST(Manifests, ReadBack) {
  EXPECT_EQ(parse_manifest(to_text(sample()), "f"), sample());
  EXPECT_EQ(json::parse(to_text(sample())).at("step"), 120);  // it is plain JSON
}

TEST(Manifests, EveryChangedByteIsNoticed) {
  const std::string text = to_text(sample());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] ^= 1;
    EXPECT_THAT(refusal([&] { parse_manifest(changed, "f"); }), HasSubstr("'f' is damaged: "));
  }
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THAT(refusal([&] { parse_manifest(text.substr(0, length), "f"); }),
                HasSubstr("'f' is damaged: it does not end with its own checksum"));
  }
  EXPECT_THAT(refusal([&] { parse_manifest(text + " ", "f"); }), HasSubstr("does not end with"));
  EXPECT_THAT(refusal([&] { parse_manifest("\n" + text, "f"); }), HasSubstr("its SHA-256 is "));
}

TEST(Manifests, AStateThatDoesNotReadBackIsRefused) {
  Manifest manifest = sample();
  manifest.state["lr"] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refusal([&] { to_text(manifest); }), HasSubstr("a number that is not finite"));
  manifest.state["lr"] = "\xff";
  EXPECT_THAT(refusal([&] { to_text(manifest); }), HasSubstr("text that is no UTF-8"));
  manifest.state = json::array();
  for (int i = 0; i < 40; ++i) manifest.state = json::array({manifest.state});
  EXPECT_THAT(refusal([&] { to_text(manifest); }), HasSubstr("nested more than 32 deep"));
}

/// What is said to a checkpoint.json with this text and a checksum that fits.
std::string sealed_refusal(const std::string& members) {
  return refusal([&] { parse_manifest(sealed("{" + members + ",\n"), "f"); });
}

std::string with_files(const std::string& files) {
  return R"("format": "pipewright-checkpoint", "version": 1, "step": 1, "state": 0, "files": )" +
         files;
}

TEST(Manifests, WrongMembersAreRefusedEvenWithAChecksum) {
  const std::string start = R"("format": "pipewright-checkpoint", "version": 1)";
  EXPECT_EQ(sealed_refusal(with_files("[]")), "accepted");
  EXPECT_THAT(sealed_refusal(R"("format": "x")"), HasSubstr("format is 'x'"));
  EXPECT_THAT(sealed_refusal(R"("format": "pipewright-checkpoint", "version": 2)"),
              HasSubstr("is of version 2, this program reads version 1"));
  EXPECT_THAT(sealed_refusal(start), HasSubstr("state is missing"));
  EXPECT_THAT(sealed_refusal(start + R"(, "state": 0, "files": [], "step": -1)"),
              HasSubstr("step is not a whole number"));
  EXPECT_THAT(sealed_refusal(start + R"(, "more": 0)"), HasSubstr("more is no member there"));
  EXPECT_THAT(sealed_refusal(start + R"(, "step": 1, "step": 2)"),
              HasSubstr("'f' is damaged: the member 'step' stands twice in one object"));
  EXPECT_THAT(sealed_refusal("oops"), HasSubstr("'f' is damaged: no JSON at byte 2"));
  EXPECT_THAT(sealed_refusal(std::string("\0", 1)), HasSubstr("a byte of 0 is no JSON"));
  EXPECT_THAT(sealed_refusal("\"a\":" + std::string(100'000, '[')), HasSubstr("nested more than"));
}

TEST(Manifests, FilesElsewhereAreRefused) {
  const auto with_file = [](const std::string& name) {
    return sealed_refusal(with_files("[{\"file\": " + json(name).dump() +
                                     ", \"bytes\": 1, \"sha256\": \"" + digest() + "\"}]"));
  };
  EXPECT_EQ(with_file("f.safetensors"), "accepted");
  for (const char* name : {"../x", "/etc/passwd", "a/b", ".", "..", ""}) {
    EXPECT_THAT(with_file(name), HasSubstr("which is no name of a file beside it")) << name;
  }
  EXPECT_THAT(with_file("checkpoint.json"), HasSubstr("files has 'checkpoint.json' twice"));
  const std::string entry = R"({"file": "a", "bytes": 1, "sha256": ")" + digest() + "\"}";
  EXPECT_THAT(sealed_refusal(with_files("[" + entry + "," + entry + "]")),
              HasSubstr("files has 'a' twice"));
  EXPECT_THAT(sealed_refusal(with_files(R"([{"file": "a", "bytes": -1}])")),
              HasSubstr("files[0].bytes is not a whole number from 0"));
  EXPECT_THAT(sealed_refusal(with_files(R"([{"file": "a", "bytes": 1, "sha256": ""}])")),
              HasSubstr("files[0].sha256 is '', not 64 digits"));
}

TEST(Indexes, ReadBackAndAreThoseOfHuggingFace) {
  const std::vector<FileRecord> records = {record(Part::kWeights, 0, 2, {"b", "a"}),
                                           record(Part::kOptimizer, 0, 1, {"a"}),
                                           record(Part::kWeights, 1, 2, {"c"})};
  const TensorIndex index = make_index(Part::kWeights, records);
  EXPECT_EQ(parse_index(to_text(index), "f"), index);
  EXPECT_EQ(json::parse(to_text(index)), json::parse(R"({
    "metadata": {"total_size": 80},
    "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
                   "c": "model-00002-of-00002.safetensors"}})"));
}

TEST(Indexes, RecordsThatDoNotBelongTogetherAreRefused) {
  const auto words = [](const std::vector<FileRecord>& records) {
    return refusal([&] { make_index(Part::kWeights, records); });
  };
  EXPECT_THAT(words({record(Part::kWeights, 0, 2, {"a"})}),
              HasSubstr("'model-00002-of-00002.safetensors' was not written"));
  EXPECT_THAT(words({record(Part::kWeights, 0, 1, {"a"}), record(Part::kWeights, 0, 1, {"b"})}),
              HasSubstr("'model-00001-of-00001.safetensors' comes twice"));
  EXPECT_THAT(words({record(Part::kWeights, 0, 2, {"a"}), record(Part::kWeights, 1, 2, {"a"})}),
              HasSubstr("tensor 'a' is in 'model-00001-of-00002.safetensors' and in "
                        "'model-00002-of-00002.safetensors'; one group may save it"));
  EXPECT_THAT(words({record(Part::kWeights, 0, 2, {"a"}), record(Part::kWeights, 1, 2, {"b"}),
                     record(Part::kWeights, 0, 1, {"c"})}),
              HasSubstr("is of another number of groups than 2"));
  FileRecord huge = record(Part::kWeights, 0, 2, {"a"});
  huge.tensor_bytes = INT64_MAX;
  EXPECT_THAT(words({huge, record(Part::kWeights, 1, 2, {"b"})}), HasSubstr("which cannot be"));
}

TEST(Indexes, WrongOnesAreRefused) {
  const auto words = [](const std::string& text) {
    return refusal([&] { parse_index(text, "f"); });
  };
  EXPECT_EQ(words(R"({"weight_map": {"a": "f.safetensors"}, "metadata": {"total_size": 1.0}})"),
            "accepted");
  EXPECT_THAT(words("{}"), HasSubstr("weight_map is missing"));
  EXPECT_THAT(words(R"({"weight_map": []})"), HasSubstr("weight_map is array, not an object"));
  EXPECT_THAT(words(R"({"weight_map": {"a": 1}})"), HasSubstr("a is number, not a string"));
  EXPECT_THAT(words(R"({"weight_map": {"a": "../f"}})"), HasSubstr("no name of a file beside it"));
  EXPECT_THAT(words(R"({"weight_map": {"a": "f", "a": "g"}})"), HasSubstr("'a' stands twice"));
}

}  // namespace
}  // namespace pipewright
