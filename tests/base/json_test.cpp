#include "pipewright/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

TEST(Json, NamesTheLineOfAMistake) {
  EXPECT_THAT(refusal([] { parse_json("{\n  \"a\": ,\n}", "file"); }),
              HasSubstr("line 2, column 8"));
  EXPECT_THAT(refusal([] { parse_json("", "file"); }), HasSubstr("line 1, column 1"));
}

TEST(Json, RefusesDeepNestingInsteadOfUsingUpTheStack) {
  EXPECT_THAT(refusal([] { parse_json(std::string(1'000'000, '['), "file"); }),
              HasSubstr("nested"));
  EXPECT_NO_THROW(parse_json(R"({"text": "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["})", "file"));
}

TEST(JsonObject, NamesTheMemberThatIsWrong) {
  const auto value =
      parse_json(R"({"a": "x", "b": -1, "c": 1.5, "d": 18446744073709551615})", "file");
  const JsonObject object(value, "file", "root");
  EXPECT_THAT(refusal([&] { object.non_negative("a"); }),
              HasSubstr("[file] root.a is string, not a number"));
  EXPECT_THAT(refusal([&] { object.non_negative("b"); }), HasSubstr("root.b is -1"));
  EXPECT_THAT(refusal([&] { object.integer("c", 0, 5); }),
              HasSubstr("root.c is not a whole number from 0 to 5"));
  EXPECT_THAT(refusal([&] { object.integer("d", 0, 5); }), HasSubstr("root.d"));
  EXPECT_THAT(refusal([&] { object.string("e"); }), HasSubstr("root.e is missing"));
  EXPECT_THAT(refusal([&] { object.array("a"); }), HasSubstr("root.a is string, not an array"));
  EXPECT_THAT(refusal([&] {
                object.refuse_unknown({"a", "b", "c"});
              }),
              HasSubstr("root.d is no member"));
  EXPECT_DOUBLE_EQ(object.non_negative_or("nothing", 3), 3);
}

TEST(File, SaysWhyItCannotBeRead) {
  EXPECT_THAT(refusal([] { read_file("/nowhere/at/all", "--from-csv"); }),
              testing::AllOf(HasSubstr("[--from-csv] cannot read '/nowhere/at/all'"),
                             HasSubstr("No such file")));
  EXPECT_THAT(refusal([] { read_file("/tmp", "--from-csv"); }), HasSubstr("is a folder"));
  EXPECT_THAT(refusal([] { write_file("/nowhere/at/all", "x", "--csv"); }),
              HasSubstr("cannot write"));
}

TEST(File, ReadsBackWhatWasWritten) {
  const auto path = std::filesystem::path(testing::TempDir()) / "pipewright_file_test";
  const std::string contents("a\0b\n", 4);
  write_file(path, contents, "test");
  EXPECT_EQ(read_file(path, "test"), contents);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace pipewright
