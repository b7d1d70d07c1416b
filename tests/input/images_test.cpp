#include "pipewright/input/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/input/idx.h"
#include "tests/input/folder.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_input::Folder;

std::vector<int> picture(const ImageSet& set, std::int64_t image) {
  std::vector<std::byte> bytes(set.image_bytes());
  set.read(image, bytes);
  std::vector<int> values;
  for (const std::byte byte : bytes) values.push_back(std::to_integer<int>(byte));
  return values;
}

// Two pictures of 2 x 3, and their labels, byte by byte as the format's description has it.
const std::string kPictures = "\0\0\x08\x03\0\0\0\2\0\0\0\2\0\0\0\3"s + "abcdefghijkl";
const std::string kLabels = "\0\0\x08\x01\0\0\0\2"s + "\x07\x00"s;

TEST(Idx, HasPicturesAndLabels) {
  const Folder folder;
  const IdxImages set(folder.file("images", kPictures), folder.file("labels", kLabels));
  EXPECT_EQ(set.size(), 2);
  EXPECT_THAT(set.shape(), ElementsAre(1, 2, 3));
  EXPECT_EQ(set.label(0), 7);
  EXPECT_EQ(set.label(1), 0);
  EXPECT_THAT(picture(set, 1), ElementsAre('g', 'h', 'i', 'j', 'k', 'l'));
}

TEST(Idx, MayHaveChannels) {
  const Folder folder;
  const std::string pictures = "\0\0\x08\x04\0\0\0\1\0\0\0\2\0\0\0\1\0\0\0\1"s + "ab";
  const IdxImages set(folder.file("images", pictures),
                      folder.file("labels", "\0\0\x08\x01\0\0\0\1\x09"s));
  EXPECT_THAT(set.shape(), ElementsAre(2, 1, 1));
  EXPECT_THAT(picture(set, 0), ElementsAre('a', 'b'));
}

TEST(Idx, NumbersAreBigEndian) {
  const Folder folder;
  const ArrayFile array =
      open_idx(folder.file("a", "\0\0\x0c\x01\0\0\0\2\0\0\1\2\xff\xff\xff\xfe"s));
  std::int32_t value = 0;
  array.read(0, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(value, 0x102);
  array.read(1, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(value, -2);
}

TEST(Idx, KnowsItsTypes) {
  const auto dtype = [](char code, std::int64_t bytes) {
    const std::string head = "\0\0"s + code + "\1\0\0\0\1"s;
    return parse_idx_header(head, 8 + bytes, "a").dtype;
  };
  EXPECT_EQ(dtype(8, 1), DType::kU8);
  EXPECT_EQ(dtype(9, 1), DType::kI8);
  EXPECT_EQ(dtype(11, 2), DType::kI16);
  EXPECT_EQ(dtype(12, 4), DType::kI32);
  EXPECT_EQ(dtype(13, 4), DType::kF32);
  EXPECT_EQ(dtype(14, 8), DType::kF64);
}

TEST(IdxRefuses, EveryDamageOfTheHeader) {
  const auto refused = [](const std::string& head, std::int64_t bytes) {
    return refusal([&] { parse_idx_header(head, bytes, "a"); });
  };
  EXPECT_EQ(refused(kPictures, 28), "accepted");
  EXPECT_EQ(refused("\0\0"s, 2), "[data] 'a' byte 2: the file ends within its header");
  EXPECT_EQ(refused("\1"s + kPictures.substr(1), 28),
            "[data] 'a' byte 0: this is no IDX file: its first two bytes are not 0");
  EXPECT_THAT(refused("\x1f\x8b\x08\0"s, 100), HasSubstr("unpack it with gunzip first"));
  EXPECT_EQ(refused("\0\0\x0a\x01\0\0\0\1"s, 9),
            "[data] 'a' byte 2: element type 10; known are 8, 9 and 11 to 14");
  EXPECT_EQ(refused("\0\0\x08\0"s, 4), "[data] 'a' byte 3: 0 dimensions; there must be 1 to 64");
  EXPECT_EQ(refused(kPictures.substr(0, 15), 15),
            "[data] 'a' byte 15: the file ends within the sizes of its 3 dimensions");
  EXPECT_EQ(refused(kPictures, 27),
            "[data] 'a' byte 4: the sizes call for 12 bytes of data, the file has 11; it was cut "
            "short or is damaged");
  EXPECT_THAT(refused(kPictures, 29), HasSubstr("the file has 13"));
  EXPECT_THAT(refused("\0\0\x0e\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"s, 28),
              HasSubstr("more than 2^63 bytes"));
}

TEST(IdxRefuses, EveryFileThatWasCutShort) {
  for (std::size_t size = 0; size < kPictures.size(); ++size) {
    EXPECT_THAT(refusal([&] {
                  parse_idx_header(kPictures.substr(0, size), static_cast<std::int64_t>(size), "a");
                }),
                HasSubstr("[data] 'a' byte "))
        << size;
  }
}

TEST(IdxRefuses, FilesThatDoNotBelongTogether) {
  const Folder folder;
  const std::string images = folder.file("images", kPictures);
  const std::string labels = folder.file("labels", kLabels);
  const auto refused = [&](const std::string& a, const std::string& b, int classes = 10) {
    return folder.without(refusal([&] { IdxImages(a, b, classes); }));
  };
  EXPECT_THAT(refused(labels, images),
              HasSubstr("pictures are unsigned bytes of 3 or 4 dimensions"));
  EXPECT_THAT(refused(images, images), HasSubstr("labels are unsigned bytes of 1 dimension"));
  EXPECT_EQ(refused(images, folder.file("one", "\0\0\x08\x01\0\0\0\1\x01"s)),
            "[data] 'images' has 2 pictures, 'one' 1 labels; they must be of the same set");
  EXPECT_EQ(refused(images, labels, 7),
            "[data] 'labels' byte 8: label 7 of picture 0; there are 7 classes");
}

/// A picture of CIFAR whose pixels are all `pixel`.
std::string record(int label, char pixel) {
  return std::string(1, static_cast<char>(label)) + std::string(3072, pixel);
}

TEST(Cifar, JoinsTheFilesOfAFolder) {
  const Folder folder;
  folder.file("data_batch_2.bin", record(9, 'c'));
  folder.file("data_batch_1.bin", record(3, 'a') + record(0, 'b'));
  folder.file("readme.html", "no pictures");
  const CifarImages set(folder.path());
  ASSERT_EQ(set.size(), 3);
  EXPECT_THAT(set.shape(), ElementsAre(3, 32, 32));
  EXPECT_EQ(set.label(0), 3);
  EXPECT_EQ(set.label(2), 9);
  EXPECT_EQ(picture(set, 0), std::vector<int>(3072, 'a'));
  EXPECT_EQ(picture(set, 1), std::vector<int>(3072, 'b'));
  EXPECT_EQ(picture(set, 2), std::vector<int>(3072, 'c'));
}

TEST(Cifar, TakesTheFineLabelOfCifar100) {
  const Folder folder;
  const CifarImages set(folder.file("train.bin", "\x05"s + record(99, 'x')),
                        CifarImages::Kind::kCifar100);
  EXPECT_EQ(set.classes(), 100);
  EXPECT_EQ(set.label(0), 99);
  EXPECT_EQ(picture(set, 0), std::vector<int>(3072, 'x'));
}

TEST(CifarRefuses, DamagedFiles) {
  const Folder folder;
  const auto refused = [&](const std::string& contents) {
    const std::string path = folder.file("a.bin", contents);
    return folder.without(refusal([&] { CifarImages{path}; }));
  };
  EXPECT_EQ(
      refused(record(1, 'a') + record(2, 'b').substr(1)),
      "[data] 'a.bin' byte 3073: the file's 6145 bytes are no whole number of pictures, which "
      "take 3073 each; it was cut short or is no CIFAR-10 binary file");
  EXPECT_THAT(refused(""), HasSubstr("0 bytes are no whole number of pictures"));
  EXPECT_EQ(refused(record(1, 'a') + record(10, 'b')),
            "[data] 'a.bin' byte 3073: label 10; there are 10 classes");
}

}  // namespace
}  // namespace pipewright
