#include "pipewright/trace/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "pipewright/base/file.h"
#include "pipewright/trace/palette.h"
#include "tests/trace/sample.h"

// What the page draws is tested in a browser: browser_test.py. Here, what it is given.

namespace pipewright {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kOpen = "<script type=\"application/json\" id=\"data\">";

std::string data_text(const std::string& page) {
  const std::size_t from = page.find(kOpen) + kOpen.size();
  return page.substr(from, page.find("</script>", from) - from);
}

json data_of(const std::vector<Timeline>& timelines, const std::string& title = "") {
  return json::parse(data_text(to_html(timelines, title)));
}

TEST(Html, IsTheTemplateByteForByteAroundTheData) {
  const std::string page = to_html({}, "title");
  std::string expected =
      read_file(PIPEWRIGHT_TEST_DATA "/../pipewright/trace/timeline.html", "test");
  const std::string placeholder = "PIPEWRIGHT_DATA";
  ASSERT_NE(expected.find(placeholder), std::string::npos);
  expected.replace(expected.find(placeholder), placeholder.size(), data_text(page));
  EXPECT_EQ(page, expected);
}

TEST(Html, LoadsNothing) {
  const std::string page = to_html(std::vector{gpipe_timeline(2, 2)}, "");
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("http://")));
  EXPECT_THAT(page, Not(HasSubstr("https://")));
  EXPECT_THAT(page, Not(HasSubstr(" src=")));
}

TEST(Html, HoldsSpansAsColumns) {
  Timeline timeline;
  timeline.name = "n";
  timeline.time_unit = "s";
  timeline.ranks = {{make_span(Kind::kForward, 0, 10, 11, 4),
                     make_span(Kind::kBackward, 12, 11.5, 12, 9),
                     make_span(Kind::kStep, -1, 12, 12.25, 4)}};
  timeline.ranks[0][1].link_wait = 0.5;
  timeline.memory = {{{10, 0}, {11, 4096}}};
  const json data = data_of({timeline}, "t");
  EXPECT_EQ(data["title"], "t");
  const json& out = data["timelines"][0];
  EXPECT_EQ(out["unit"], "s");
  EXPECT_EQ(out["step"], 2.25);
  EXPECT_EQ(out["ranks"][0], json::parse(R"({"start":[0,1.5,2],"length":[1,0.5,0.25],"kind":"abk",
      "batch":[0,12,-1],"stages":[4,9],"chunk":[0,1,0],"wait":[0,0.5,0]})"));
  EXPECT_EQ(out["memory"], json::parse("[[0,0,1,4096]]"));
}

TEST(Html, LeavesOutColumnsOfZeros) {
  const json rank = data_of({gpipe_timeline(1, 1)})["timelines"][0]["ranks"][0];
  EXPECT_FALSE(rank.contains("chunk"));
  EXPECT_FALSE(rank.contains("wait"));
}

TEST(Html, TakesColoursFromThePalette) {
  const json data = data_of({});
  ASSERT_EQ(data["kinds"].size(), kAllKinds.size());
  EXPECT_EQ(data["kinds"][1]["words"], "backward");
  EXPECT_EQ(data["kinds"][1]["shades"][1][0], hex(kind_colour(Kind::kBackward, 1)));
  EXPECT_EQ(data["parts"][0], json({"compute", hex(part_colour(0))}));
}

TEST(Html, SaysWhereTheTimeWent) {
  const json timeline = data_of({gpipe_timeline(4, 8)})["timelines"][0];
  EXPECT_NEAR(timeline["bubble"].get<double>(), 3.0 / 11, 1e-9);
  EXPECT_NEAR(timeline["parts"][0].get<double>(), 8.0 / 11, 1e-9);
  EXPECT_NEAR(timeline["parts"][5].get<double>(), 3.0 / 11, 1e-9);
}

TEST(Html, NamesCannotEndTheScript) {
  const std::string name = "a\"</script><!--\xE2\x80\xA8\\PIPEWRIGHT_DATA";
  const std::string page = to_html(std::vector{named(name)}, name);
  EXPECT_EQ(data_text(page).find('<'), std::string::npos);
  EXPECT_EQ(data_text(page).find("\xE2\x80\xA8"), std::string::npos);
  const json data = json::parse(data_text(page));
  EXPECT_EQ(data["title"], name);
  EXPECT_EQ(data["timelines"][0]["name"], name);
  EXPECT_NO_THROW(data_of({named("\xff")}));
}

TEST(Html, HoldsOnlyFiniteNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Timeline timeline;
  timeline.ranks = {{make_span(Kind::kForward, 0, 0, 1e299), make_span(Kind::kForward, 1, 0, nan),
                     make_span(Kind::kForward, 2, 0, kInfinity)}};
  timeline.memory = {{{nan, kInfinity}}};
  const json data = data_of({timeline});
  EXPECT_EQ(data["timelines"][0]["ranks"][0]["start"].size(), 1U);
}

TEST(Html, PacksSpansIntoFewBytes) {
  const Timeline many = gpipe_timeline(64, 1000);
  EXPECT_LT(to_html(std::vector{many}, "").size(), 40 * num_spans(many));
}

TEST(Html, HoldsVersionsWhereThereAreAny) {
  const json data = data_of({asynchronous_timeline(2), gpipe_timeline(1, 1)});
  EXPECT_EQ(data["timelines"][0]["ranks"][0]["version"], json({0, 0, 0, 1, 0, 2}));
  EXPECT_FALSE(data["timelines"][1]["ranks"][0].contains("version"));
}

}  // namespace
}  // namespace pipewright
