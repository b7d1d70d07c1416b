#include "pipewright/input/clicks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/input/folder.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_input::Folder;

constexpr CriteoOptions kSmall = {.numeric = 2, .fields = 2, .buckets = 50, .logarithms = false};

std::string wrong(std::string_view line, const CriteoOptions& options = kSmall) {
  ClickRow row;
  return parse_criteo(line, options, &row).value_or("nothing");
}

ClickRow parsed(std::string_view line, const CriteoOptions& options = kSmall) {
  ClickRow row;
  EXPECT_EQ(parse_criteo(line, options, &row).value_or(""), "");
  return row;
}

TEST(Criteo, ReadsALine) {
  const ClickRow row = parsed("1\t3\t-2.5\t68fd1e64\t80e26c9b");
  EXPECT_EQ(row.label, 1);
  EXPECT_THAT(row.numeric, ElementsAre(3, -2.5F));
  EXPECT_THAT(row.fields, ElementsAre(field_id(0, "68fd1e64", 50), field_id(1, "80e26c9b", 50)));
}

TEST(Criteo, MissingValuesAreZero) {
  const ClickRow row = parsed("0\t\t7\t\tab");
  EXPECT_EQ(row.label, 0);
  EXPECT_THAT(row.numeric, ElementsAre(0, 7));
  EXPECT_EQ(row.fields[0], 0);
  EXPECT_GT(row.fields[1], 0);
  EXPECT_THAT(parsed("0\t\t\t\t").fields, ElementsAre(0, 0));
}

TEST(Criteo, NumbersMayBeTakenAsLogarithms) {
  CriteoOptions options = kSmall;
  options.logarithms = true;
  const ClickRow row = parsed("0\t1000\t-3\t\t", options);
  EXPECT_FLOAT_EQ(row.numeric[0], std::log(1001.0F));
  EXPECT_FLOAT_EQ(row.numeric[1], -std::log(4.0F));
}

// A line of the published set has 13 numbers and 26 fields.
TEST(Criteo, ReadsTheUsualColumns) {
  std::string line = "0";
  for (int i = 0; i < 13; ++i) line += "\t" + std::to_string(i);
  for (int i = 0; i < 26; ++i) line += "\tf" + std::to_string(i);
  const ClickRow row = parsed(line, {});
  EXPECT_EQ(row.numeric.size(), 13U);
  EXPECT_EQ(row.fields.size(), 26U);
}

TEST(Criteo, HasAnyNumberOfColumns) {
  EXPECT_THAT(parsed("1\t5", {.numeric = 1, .fields = 0, .logarithms = false}).numeric,
              ElementsAre(5));
  EXPECT_EQ(parsed("1\ta\tb\tc", {.numeric = 0, .fields = 3}).fields.size(), 3U);
}

TEST(Criteo, IdsAreWithinTheBucketsAndSpread) {
  std::set<std::int64_t> ids;
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t id = field_id(3, std::to_string(i), 50);
    ASSERT_GE(id, 1);
    ASSERT_LT(id, 50);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 49U);
  EXPECT_EQ(field_id(0, "x", 2), 1);
}

// A saved model's embeddings depend on these numbers.
TEST(Criteo, IdsAreTheseForAllTime) {
  EXPECT_EQ(field_id(0, "68fd1e64", 100000), 15970);
  EXPECT_EQ(field_id(1, "68fd1e64", 100000), 46351);
}

TEST(CriteoRefuses, BadLines) {
  EXPECT_EQ(wrong(""), "1 columns, not 5");
  EXPECT_EQ(wrong("1\t2\t3\t4"), "4 columns, not 5");
  EXPECT_EQ(wrong("1\t2\t3\t4\t5\t"), "6 columns, not 5");
  EXPECT_EQ(wrong("2\t2\t3\ta\tb"), "the label is \"2\", not 0 or 1");
  EXPECT_EQ(wrong("\t2\t3\ta\tb"), "the label is \"\", not 0 or 1");
  EXPECT_EQ(wrong("1\t2x\t3\ta\tb"), "column 2 is \"2x\", no number");
  EXPECT_EQ(wrong("1\t2\tnan\ta\tb"), "column 3 is \"nan\", no number");
  EXPECT_EQ(wrong("1\t2\tinf\ta\tb"), "column 3 is \"inf\", no number");
  EXPECT_EQ(wrong("1\t2\t1e300\ta\tb"), "column 3 is \"1e300\", no number");
  EXPECT_EQ(wrong("1\t 2\t3\ta\tb"), "column 2 is \" 2\", no number");
  EXPECT_EQ(wrong("1\t2\t" + std::string(100, 'z') + "\ta\tb"),
            "column 3 is \"" + std::string(40, 'z') + "\"..., no number");
}

TEST(CriteoFile, LeavesBadRowsOutAndCountsThem) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += i % 10 == 3 ? "bad\n" : "0\t" + std::to_string(i) + "\t0\t\t\n";
  }
  const CriteoFile file(folder.file("log.tsv", text), kSmall);
  ASSERT_EQ(file.size(), 90);
  EXPECT_EQ(file.report().bad_rows, 10);
  std::vector<float> numbers;
  std::vector<float> expected;
  for (std::int64_t i = 0; i < 90; ++i) numbers.push_back(file.row(i).numeric[0]);
  for (int i = 0; i < 100; ++i) {
    if (i % 10 != 3) expected.push_back(static_cast<float>(i));
  }
  EXPECT_EQ(numbers, expected);
  EXPECT_EQ(file.report().text(),
            "90 rows; 10 bad ones left out:\n"
            "  line 4: 1 columns, not 5\n"
            "  line 14: 1 columns, not 5\n"
            "  line 24: 1 columns, not 5\n"
            "  line 34: 1 columns, not 5\n"
            "  line 44: 1 columns, not 5\n"
            "  ...\n");
}

TEST(CriteoFile, BadRowsMayStandAtBothEnds) {
  const Folder folder;
  const CriteoFile file(folder.file("log.tsv", "x\ny\n1\t5\t6\ta\tb\nz"), kSmall);
  ASSERT_EQ(file.size(), 1);
  EXPECT_THAT(file.row(0).numeric, ElementsAre(5, 6));
}

TEST(CriteoFile, SaysThatAllIsWell) {
  const Folder folder;
  EXPECT_EQ(CriteoFile(folder.file("log.tsv", "1\t5\t6\ta\tb\n"), kSmall).report().text(),
            "1 rows, all good\n");
}

TEST(CriteoFile, RefusesFilesWithoutGoodRows) {
  const Folder folder;
  const std::string none = folder.file("log.tsv", "1,2\n3,4\n");
  const std::string some = folder.file("some.tsv", "1\t5\t6\ta\tb\nx\ny\n");
  const auto refused = [&](const std::string& path, std::optional<std::int64_t> most = {}) {
    return folder.without(refusal([&] { CriteoFile(path, kSmall, most); }));
  };
  EXPECT_EQ(refused(none),
            "[data] 'log.tsv': 2 of 2 rows are bad, more than allowed; the first, line 1: 1 "
            "columns, not 5; check the numbers of columns (2 numeric, 2 categorical)");
  EXPECT_EQ(refused(some), "accepted");
  EXPECT_EQ(refused(some, 2), "accepted");
  EXPECT_THAT(refused(some, 1), HasSubstr("2 of 3 rows are bad, more than allowed"));
  EXPECT_EQ(refused(folder.file("empty", "")), "[data] 'empty' is empty");
}

TEST(CriteoFile, RefusesOptionsThatDoNotFit) {
  EXPECT_EQ(refusal([] { CriteoFile("a", {.numeric = 0, .fields = 0}); }),
            "[data] 0 numeric and 0 categorical columns; there must be at least one");
  EXPECT_EQ(refusal([] { CriteoFile("a", {.buckets = 1}); }),
            "[data] buckets = 1; use 2 or more: id 0 is for missing values");
}

}  // namespace
}  // namespace pipewright
