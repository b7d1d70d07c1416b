#include "pipewright/base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/error.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

TEST(Bytes, ReadDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("0", "x"), 0);
  EXPECT_EQ(parse_bytes("1048576", "x"), 1048576);
  EXPECT_EQ(parse_bytes("512MiB", "x"), 512LL << 20);
  EXPECT_EQ(parse_bytes("8GiB", "x"), 8LL << 30);
  EXPECT_EQ(parse_bytes("1.5 KiB", "x"), 1536);
  EXPECT_EQ(parse_bytes("2GB", "x"), 2'000'000'000);
  EXPECT_EQ(parse_bytes("3TiB", "x"), 3LL << 40);
}

TEST(Bytes, RefuseWhatIsNoNumberOfBytes) {
  for (const char* text :
       {"", "GiB", "-1", "1 GiBs", "1gib", "nan", "inf", "1e400", "99999999TiB", "1,5MiB"}) {
    EXPECT_THAT(refusal([&] { parse_bytes(text, "--memory"); }),
                testing::AllOf(testing::HasSubstr("[--memory]"), testing::HasSubstr("8GiB")))
        << text;
  }
}

TEST(Bytes, AreWrittenInTheUnitThatReadsBest) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(0x1p33), "8 GiB");
}

TEST(Integers, KeepTheirRange) {
  EXPECT_EQ(parse_integer("7", "--ranks", 1, 10), 7);
  for (const char* text : {"", "0", "11", "7x", " 7", "99999999999999999999", "1.5"}) {
    EXPECT_THAT(refusal([&] { parse_integer(text, "--ranks", 1, 10); }),
                testing::HasSubstr("is not a whole number from 1 to 10"))
        << text;
  }
}

TEST(Times, AreFiniteAndNotNegative) {
  EXPECT_DOUBLE_EQ(parse_non_negative("0.25", "--forward"), 0.25);
  for (const char* text : {"", "-1", "nan", "inf", "1s", "--"}) {
    EXPECT_THAT(refusal([&] { parse_non_negative(text, "--forward"); }),
                testing::HasSubstr("[--forward] '"))
        << text;
  }
}

TEST(Seconds, AreWrittenInTheUnitThatReadsBest) {
  EXPECT_EQ(format_seconds(1.25), "1.25 s");
  EXPECT_EQ(format_seconds(0.0031), "3.1 ms");
  EXPECT_EQ(format_seconds(12e-6), "12 us");
  EXPECT_EQ(format_seconds(0), "0 s");
}

TEST(InternalCheck, NamesThePlaceAndAsksForAReport) {
  try {
    internal_check(false, "the sky is green");
    FAIL() << "nothing was thrown";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("the sky is green"),
                                             testing::HasSubstr("units_test.cpp:")));
  }
}

}  // namespace
}  // namespace pipewright
