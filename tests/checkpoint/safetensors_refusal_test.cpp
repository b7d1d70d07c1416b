// Every way in which a file can fail to be safetensors, and what is said then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipewright/checkpoint/safetensors.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_checkpoint::TempFolder;

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>((length >> shift) & 0xffU);
  }
  return bytes + rest;
}

/// What is said to a file of these bytes. Every message begins with the file.
std::string refusal_of_bytes(const std::string& bytes) {
  const TempFolder folder;
  write_text(folder / "f.safetensors", bytes);
  const std::string words = refusal([&] { SafetensorsFile(folder / "f.safetensors"); });
  const std::string start =
      "[checkpoint] '" + (folder / "f.safetensors") + "' is no whole safetensors file: ";
  if (words == "accepted") return words;
  EXPECT_THAT(words, StartsWith(start));
  return words.substr(std::min(start.size(), words.size()));
}

std::string refusal_of(const std::string& json, const std::string& data = "") {
  return refusal_of_bytes(with_length(json.size(), json + data));
}

/// A header with one tensor `a` of these members.
std::string tensor(const std::string& members) { return "{\"a\": {" + members + "}}"; }

TEST(SafetensorsRefusals, TheLengthOfTheHeader) {
  EXPECT_THAT(refusal_of_bytes(""), HasSubstr("it has 0 bytes, and the first 8 are the length"));
  EXPECT_THAT(refusal_of_bytes("1234567"), HasSubstr("it has 7 bytes"));
  EXPECT_EQ(refusal_of_bytes(with_length(3, "{}")),
            "a header of 3 bytes does not fit into a file of 10");
  EXPECT_EQ(refusal_of_bytes(with_length(100'000'001, "{}")),
            "a header of 100000001 bytes is more than 100000000");
  EXPECT_EQ(refusal_of_bytes(with_length(UINT64_MAX, "{}")),
            "a header of 18446744073709551615 bytes is more than 100000000");
  EXPECT_EQ(refusal_of_bytes(with_length(0, "{}")), "the header does not begin with '{'");
}

TEST(SafetensorsRefusals, WhatIsNoJson) {
  EXPECT_EQ(refusal_of("[]"), "the header does not begin with '{'");
  EXPECT_EQ(refusal_of(" {}"), "the header does not begin with '{'");
  EXPECT_EQ(refusal_of("\xef\xbb\xbf{}"), "the header does not begin with '{'");
  EXPECT_EQ(refusal_of("{"), "no JSON at byte 2 of the header");
  EXPECT_EQ(refusal_of("{} x"), "no JSON at byte 4 of the header");
  EXPECT_EQ(refusal_of("{\"\xff\": {}}"), "no JSON at byte 3 of the header");
  EXPECT_EQ(refusal_of("{\"\\ud800\": {}}"), "no JSON at byte 9 of the header");
  EXPECT_EQ(refusal_of(std::string("{}\0\0", 4)), "a byte of 0 is in the header");
  EXPECT_THAT(refusal_of(tensor(R"("shape": [1e999])")), HasSubstr("no JSON at byte"));
  EXPECT_EQ(refusal_of("{}  \n"), "accepted");
}

TEST(SafetensorsRefusals, NestingEndsAtItsFirstStep) {
  EXPECT_EQ(refusal_of("{\"a\":" + std::string(1'000'000, '[')), "'a' is an array, not an object");
  EXPECT_EQ(refusal_of(tensor("\"shape\": " + std::string(1'000'000, '['))),
            "tensor 'a' has an array in its shape, not a whole number from 0 to 2^63 - 1");
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"a\":{";
  EXPECT_EQ(refusal_of(objects),
            "tensor 'a' has a member 'a'; there are dtype, shape, data_offsets");
}

TEST(SafetensorsRefusals, MembersOfAWrongType) {
  EXPECT_EQ(refusal_of(R"({"a": 1})"), "'a' is 1, not an object");
  EXPECT_EQ(refusal_of(R"({"a": null})"), "'a' is null, not an object");
  EXPECT_EQ(refusal_of(R"({"a": true})"), "'a' is a boolean, not an object");
  EXPECT_EQ(refusal_of(R"({"a": "b"})"), "'a' is a string, not an object");
  EXPECT_EQ(refusal_of(R"({"__metadata__": 1})"), "'__metadata__' is 1, not an object");
  EXPECT_EQ(refusal_of(R"({"__metadata__": {"k": 1}})"), "'k' of __metadata__ is 1, not a string");
  EXPECT_EQ(refusal_of(R"({"__metadata__": {"k": {}}})"),
            "'k' of __metadata__ is an object, not a string");
  EXPECT_EQ(refusal_of(tensor(R"("dtype": 1)")), "tensor 'a' has 1 for its dtype, not a string");
  EXPECT_EQ(refusal_of(tensor(R"("shape": 1)")), "tensor 'a' has 1 for its shape, not an array");
  EXPECT_EQ(refusal_of(tensor(R"("data_offsets": "0")")),
            "tensor 'a' has a string for its data_offsets, not an array");
  EXPECT_EQ(refusal_of(tensor(R"("shape": ["1"])")),
            "tensor 'a' has a string in its shape, not a whole number from 0 to 2^63 - 1");
}

TEST(SafetensorsRefusals, MembersMissingUnknownOrTwice) {
  EXPECT_EQ(refusal_of(tensor("")), "tensor 'a' has no dtype");
  EXPECT_EQ(refusal_of(tensor(R"("dtype": "U8")")), "tensor 'a' has no shape");
  EXPECT_EQ(refusal_of(tensor(R"("dtype": "U8", "shape": [])")), "tensor 'a' has no data_offsets");
  EXPECT_EQ(refusal_of(tensor(R"("strides": [])")),
            "tensor 'a' has a member 'strides'; there are dtype, shape, data_offsets");
  EXPECT_EQ(refusal_of(tensor(R"("dtype": "U8", "dtype": "I8")")), "'dtype' of 'a' stands twice");
  EXPECT_EQ(refusal_of(R"({"__metadata__": {"k": "1", "k": "2"}})"),
            "'k' of '__metadata__' stands twice");
  EXPECT_EQ(refusal_of(R"({"__metadata__": {}, "__metadata__": {}})"),
            "'__metadata__' stands twice in the header");
  const std::string empty = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(refusal_of("{\"a\":" + empty + ",\"a\":" + empty + "}"),
            "'a' stands twice in the header");
  // The same name, written otherwise.
  EXPECT_EQ(refusal_of("{\"a\":" + empty + ",\"\\u0061\":" + empty + "}"),
            "'a' stands twice in the header");
}

TEST(SafetensorsRefusals, Numbers) {
  const auto shape = [](const std::string& number) {
    return refusal_of(tensor("\"shape\": [" + number + "]"));
  };
  const std::string whole = " in its shape, not a whole number from 0 to 2^63 - 1";
  EXPECT_EQ(shape("-1"), "tensor 'a' has -1" + whole);
  EXPECT_EQ(shape("1.5"), "tensor 'a' has 1.5" + whole);
  EXPECT_EQ(shape("1e3"), "tensor 'a' has 1e3" + whole);
  EXPECT_EQ(shape("9223372036854775808"), "tensor 'a' has 9223372036854775808" + whole);
  EXPECT_EQ(shape("99999999999999999999"), "tensor 'a' has 99999999999999999999" + whole);
  const std::string offsets = " in its data_offsets, not two whole numbers from 0 to 2^63 - 1";
  EXPECT_EQ(refusal_of(tensor(R"("data_offsets": [-1, 0])")), "tensor 'a' has -1" + offsets);
  EXPECT_EQ(refusal_of(tensor(R"("data_offsets": [0, 1, 2])")), "tensor 'a' has 2" + offsets);
  EXPECT_EQ(refusal_of(tensor(R"("data_offsets": [0])")),
            "tensor 'a' has data_offsets of 1 numbers, not 2");
}

TEST(SafetensorsRefusals, TypesAndShapes) {
  EXPECT_THAT(refusal_of(tensor(R"("dtype": "F33")")),
              HasSubstr("tensor 'a' is of dtype 'F33'; known are BOOL, U8, I8, F8_E5M2"));
  const std::string huge = "4611686018427387904";  // 2^62
  EXPECT_EQ(refusal_of(tensor(R"("dtype":"F32","shape":[)" + huge + R"(,8],"data_offsets":[0,0])")),
            "tensor 'a' of shape [" + huge + ", 8] is larger than anything");
  EXPECT_EQ(refusal_of(tensor(R"("dtype":"F64","shape":[)" + huge + R"(],"data_offsets":[0,0])")),
            "tensor 'a' of shape [" + huge + "] is larger than anything");
  std::string shape = "1";
  for (int i = 0; i < 64; ++i) shape += ",1";
  EXPECT_EQ(refusal_of(tensor("\"shape\": [" + shape + "]")),
            "tensor 'a' has more than 64 dimensions");
}

TEST(SafetensorsRefusals, OffsetsThatDoNotFitTypeAndShape) {
  const auto offsets = [](const std::string& pair) {
    return refusal_of(tensor(R"("dtype":"U8","shape":[3],"data_offsets":)" + pair), "123");
  };
  const std::string start =
      "tensor 'a' takes 3 bytes by dtype U8 and shape [3], but its data_offsets are ";
  EXPECT_EQ(offsets("[0,3]"), "accepted");
  EXPECT_EQ(offsets("[0,2]"), start + "[0, 2]");
  EXPECT_EQ(offsets("[0,4]"), start + "[0, 4]");
  EXPECT_EQ(offsets("[3,0]"), start + "[3, 0]");
  EXPECT_EQ(offsets("[0,9223372036854775807]"), start + "[0, 9223372036854775807]");
}

TEST(SafetensorsRefusals, BytesThatAreUnusedUsedTwiceOrMissing) {
  const auto two = [](const std::string& first, const std::string& second,
                      const std::string& data) {
    const std::string start = R"({"dtype":"U8","shape":[2],"data_offsets":)";
    return refusal_of("{\"a\":" + start + first + "},\"b\":" + start + second + "}}", data);
  };
  EXPECT_EQ(two("[2,4]", "[0,2]", "1234"), "accepted");
  EXPECT_EQ(
      two("[0,2]", "[3,5]", "12345"),
      "tensor 'b' begins at byte 3 of the data, and the tensors before it end at 2: bytes are "
      "unused");
  EXPECT_EQ(
      two("[0,2]", "[1,3]", "123"),
      "tensor 'b' begins at byte 1 of the data, and the tensors before it end at 2: bytes are "
      "used twice");
  EXPECT_THAT(two("[0,2]", "[0,2]", "12"), HasSubstr("used twice"));
  EXPECT_THAT(two("[1,3]", "[3,5]", "12345"), HasSubstr("end at 0: bytes are unused"));
  EXPECT_EQ(two("[0,2]", "[2,4]", "12345"), "its tensors take 4 bytes, but 5 follow the header");
  EXPECT_EQ(two("[0,2]", "[2,4]", "123"), "its tensors take 4 bytes, but 3 follow the header");
  EXPECT_EQ(refusal_of("{}", "1"), "its tensors take 0 bytes, but 1 follow the header");
}

TEST(SafetensorsRefusals, NamesAreShownSafely) {
  EXPECT_EQ(refusal_of("{\"a\\u001b[31m\\n\": 1}"), "'a?[31m?' is 1, not an object");
  EXPECT_EQ(refusal_of("{\"" + std::string(1000, 'n') + "\": 1}"),
            "'" + std::string(80, 'n') + "...' is 1, not an object");
}

std::string refusal_of_path(const std::string& path) {
  return refusal([&] { const SafetensorsFile file(path); });
}

TEST(SafetensorsRefusals, WhatIsNoFile) {
  const TempFolder folder;
  EXPECT_THAT(refusal_of_path(folder / "none"),
              HasSubstr("cannot read '" + (folder / "none") + "': No such file or directory"));
  EXPECT_THAT(refusal_of_path(folder.path()), HasSubstr("it is no regular file"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0666), 0);
  EXPECT_THAT(refusal_of_path(folder / "pipe"), HasSubstr("it is no regular file"));
  EXPECT_THAT(refusal_of_path("/dev/zero"), HasSubstr("it is no regular file"));
  write_safetensors(folder / "f", {});
  ASSERT_EQ(symlink((folder / "f").c_str(), (folder / "link").c_str()), 0);
  EXPECT_THAT(refusal_of_path(folder / "link"), HasSubstr("it is a link"));
  EXPECT_TRUE(SafetensorsFile(folder / "link", Links::kFollow).header().tensors.empty());
}

TEST(SafetensorsRefusals, AFileCutShortWhileItIsRead) {
  const TempFolder folder;
  const std::string data(10'000, 'x');
  const std::vector<TensorView> tensors = {
      {"a", DType::kU8, {10'000}, testing_checkpoint::bytes_of(data)}};
  write_safetensors(folder / "f", tensors);
  const SafetensorsFile file(folder / "f");
  ASSERT_EQ(truncate((folder / "f").c_str(), 5000), 0);
  std::vector<std::byte> room(10'000);
  EXPECT_THAT(refusal([&] { file.read(*file.find("a"), room); }),
              HasSubstr("it ends at byte 5000"));
}

}  // namespace
}  // namespace pipewright
