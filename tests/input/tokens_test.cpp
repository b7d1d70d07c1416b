#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "pipewright/input/masking.h"
#include "pipewright/input/npy.h"
#include "pipewright/input/token_stream.h"
#include "tests/input/folder.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_input::Folder;

std::vector<std::int64_t> read(const TokenStream& stream, std::int64_t first, std::size_t count) {
  std::vector<std::int64_t> tokens(count);
  stream.read(first, tokens);
  return tokens;
}

/// Every stretch of the stream is that stretch of `expected`.
void expect_tokens(const TokenStream& stream, const std::vector<std::int64_t>& expected) {
  ASSERT_EQ(stream.size(), static_cast<std::int64_t>(expected.size()));
  for (std::size_t first = 0; first < expected.size(); ++first) {
    for (std::size_t count = 1; first + count <= expected.size(); ++count) {
      const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(first);
      EXPECT_EQ(read(stream, static_cast<std::int64_t>(first), count),
                std::vector<std::int64_t>(begin, begin + static_cast<std::ptrdiff_t>(count)));
    }
  }
}

TEST(ByteTokenizer, IsTheTextsBytes) {
  const ByteTokenizer bytes;
  EXPECT_THAT(bytes.encode("a\xff\n"), ElementsAre('a', 255, '\n'));
  EXPECT_EQ(bytes.decode(Tokens{'h', 'i', bytes.end(), bytes.mask()}), "hi<end><mask>");
  EXPECT_EQ(refusal([&] { bytes.decode(Tokens{260}); }), "[data] token 260 is none of 0 to 259");
  for (const auto token : {bytes.pad(), bytes.begin(), bytes.end(), bytes.mask()}) {
    EXPECT_TRUE(bytes.is_special(token));
    EXPECT_LT(token, bytes.size());
  }
}

TEST(ByteStream, JoinsTheFilesOfAFolder) {
  const Folder folder;
  folder.file("b.txt", "xy");
  folder.file("a.txt", "hi\n");
  folder.file("aa.txt", "");
  const std::int64_t end = ByteTokenizer().end();
  expect_tokens(ByteStream(folder.path()), {'h', 'i', '\n', end, end, 'x', 'y', end});
}

TEST(TokenFiles, JoinArraysOfAnyWholeNumbers) {
  const Folder folder;
  const auto array = [](DType dtype, bool big_endian, std::int64_t count, std::string_view data) {
    return npy_head({dtype, big_endian, false, {count}, 0}) + std::string(data);
  };
  using namespace std::string_view_literals;
  folder.file("1.npy", array(DType::kU16, false, 2, "\x01\x00\x02\x01"sv));
  folder.file("2.npy", array(DType::kI32, true, 1, "\x00\x00\x00\x05"sv));
  folder.file("3.npy", array(DType::kU8, false, 0, ""));
  folder.file("4.npy", array(DType::kI64, false, 1, "\x07\0\0\0\0\0\0\0"sv));
  expect_tokens(TokenFiles(folder.path(), 1000), {1, 258, 5, 7});
}

TEST(TokenFiles, RefuseWhatIsNoToken) {
  const Folder folder;
  using namespace std::string_literals;
  const std::string large =
      folder.file("large.npy", npy_head({DType::kU16, false, false, {2}, 0}) + "\x01\x00\xe8\x03"s);
  const std::string negative =
      folder.file("negative.npy", npy_head({DType::kI16, false, false, {1}, 0}) + "\xff\xff"s);
  EXPECT_EQ(folder.without(refusal([&] { read(TokenFiles(large, 1000), 0, 2); })),
            "[data] 'large.npy' byte 130: token 1000; the vocabulary has 1000");
  EXPECT_EQ(folder.without(refusal([&] { read(TokenFiles(negative, 1000), 0, 1); })),
            "[data] 'negative.npy' byte 128: token -1; the vocabulary has 1000");
  const std::string table =
      folder.file("table.npy", npy_head({DType::kU8, false, false, {1, 1}, 0}) + "x");
  const std::string real =
      folder.file("real.npy", npy_head({DType::kF32, false, false, {1}, 0}) + "1234");
  EXPECT_EQ(folder.without(refusal([&] { TokenFiles(table, 10); })),
            "[data] 'table.npy' is an array of U8 with 2 dimensions; tokens are whole numbers in "
            "one");
  EXPECT_THAT(refusal([&] { TokenFiles(real, 10); }), HasSubstr("an array of F32"));
}

TEST(Tokenize, GivesTheSameInMemoryAndInAFile) {
  const Folder folder;
  folder.file("text/a", "one\ntwo");
  folder.file("text/b", "three\n");
  const ByteTokenizer bytes;
  const Tokens tokens = tokenize_files(folder.path("text"), bytes);
  Tokens expected = bytes.encode("one\ntwo\n");
  expected.push_back(bytes.end());
  for (const std::int32_t token : bytes.encode("three\n")) expected.push_back(token);
  expected.push_back(bytes.end());
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(tokenize_files(folder.path("text"), bytes, folder.path("tokens.npy")),
            static_cast<std::int64_t>(tokens.size()));
  expect_tokens(TokenFiles(folder.path("tokens.npy"), bytes.size()),
                {tokens.begin(), tokens.end()});
  expect_tokens(MemoryStream(tokens), {tokens.begin(), tokens.end()});
}

// ---- Masking ----

struct Row {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> originals;
};

Row masked(std::vector<std::int64_t> tokens, std::size_t chosen, std::uint64_t seed) {
  Row row{std::move(tokens), std::vector<std::int64_t>(chosen), std::vector<std::int64_t>(chosen)};
  Draw draw(seed);
  mask_tokens(row.tokens, ByteTokenizer(), {}, &draw, -100, row.positions, row.originals);
  return row;
}

TEST(Masking, ChoosesItsShareAndAtLeastOne) {
  EXPECT_EQ(num_chosen(100, {}), 15);
  EXPECT_EQ(num_chosen(128, {}), 19);
  EXPECT_EQ(num_chosen(2, {}), 1);
  EXPECT_EQ(num_chosen(4, {.chosen = 1}), 4);
}

TEST(Masking, WritesDownWhatItHides) {
  std::vector<std::int64_t> tokens(200);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(i) % 250;
  const Row row = masked(tokens, 30, 1);
  std::set<std::int64_t> places;
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(row.originals[i], tokens[static_cast<std::size_t>(row.positions[i])]);
    places.insert(row.positions[i]);
  }
  EXPECT_EQ(places.size(), 30U);
  EXPECT_TRUE(std::is_sorted(row.positions.begin(), row.positions.end()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (places.contains(static_cast<std::int64_t>(i))) continue;
    EXPECT_EQ(row.tokens[i], tokens[i]) << i;
  }
}

TEST(Masking, HidesEightyChangesTenKeepsTen) {
  const std::int32_t mask = ByteTokenizer().mask();
  std::map<std::string, int> fates;
  std::map<std::int64_t, int> places;
  constexpr int kRows = 2000;
  for (std::uint64_t seed = 0; seed < kRows; ++seed) {
    const Row row = masked(std::vector<std::int64_t>(40, 'x'), 6, seed_from({seed}));
    for (const std::int64_t place : row.positions) {
      const std::int64_t token = row.tokens[static_cast<std::size_t>(place)];
      ++fates[token == mask ? "masked" : token == 'x' ? "kept" : "changed"];
      EXPECT_TRUE(token == mask || token < 256);
      ++places[place];
    }
  }
  constexpr double kChosen = kRows * 6;
  EXPECT_NEAR(fates["masked"] / kChosen, 0.8, 0.015);
  EXPECT_NEAR(fates["changed"] / kChosen, 0.1, 0.012);
  EXPECT_NEAR(fates["kept"] / kChosen, 0.1, 0.012);
  for (int place = 0; place < 40; ++place) EXPECT_NEAR(places[place], 300, 90) << place;
}

TEST(Masking, LeavesSpecialTokensAlone) {
  const ByteTokenizer bytes;
  const Row row = masked({bytes.begin(), 'a', 'b', bytes.end(), bytes.pad()}, 4, 3);
  EXPECT_THAT(row.positions, ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(row.originals, ElementsAre('a', 'b', -100, -100));
  EXPECT_EQ(row.tokens[0], bytes.begin());
  EXPECT_EQ(row.tokens[3], bytes.end());
}

TEST(Masking, RefusesSharesThatAreNone) {
  EXPECT_EQ(refusal([] { check({.chosen = 0}); }),
            "[data] chosen = 0, masked = 0.8, changed = 0.1; they are shares from 0 to 1, chosen "
            "more than 0, the other two together at most 1");
  EXPECT_THAT(refusal([] { check({.masked = 0.95}); }), HasSubstr("masked = 0.95"));
  EXPECT_THAT(refusal([] { check({.changed = std::nan("")}); }), HasSubstr("changed = nan"));
  EXPECT_EQ(refusal([] { check({}); }), "accepted");
}

}  // namespace
}  // namespace pipewright
