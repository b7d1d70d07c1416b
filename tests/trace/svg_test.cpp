#include "pipewright/trace/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/trace/palette.h"
#include "tests/trace/sample.h"

namespace pipewright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(Svg, DrawsABoxASpan) {
  const std::string svg = to_svg(std::vector{gpipe_timeline(4, 8), chunked_timeline(3, 2)});
  // One more of each: the legend's.
  EXPECT_EQ(count(svg, "<rect class=\"F0\""), 4 * 8 + 3 * 2 + 1U);
  EXPECT_EQ(count(svg, "<rect class=\"F1\""), 3 * 2U);
  EXPECT_EQ(count(svg, "<rect class=\"B0\""), 4 * 8 + 1U);
  EXPECT_EQ(count(svg, "<rect class=\"STEP0\""), 3 + 1U);
  EXPECT_EQ(count(svg, "<rect class=\"lane\""), 4 + 3 + 1U);
}

TEST(Svg, TakesColoursFromThePaletteAndFollowsTheReadersTheme) {
  const std::string svg = to_svg(std::vector{gpipe_timeline(2, 2)});
  EXPECT_THAT(svg, HasSubstr(".F0{fill:" + hex(kind_colour(Kind::kForward)) + "}"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(svg, Not(HasSubstr(".W0{")));
  EXPECT_THAT(svg, Not(HasSubstr("later stages")));
}

TEST(Svg, SaysStepTimeAndBubble) {
  EXPECT_THAT(to_svg(std::vector{gpipe_timeline(4, 8)}), HasSubstr("step time 33, bubble 27.3%"));
}

TEST(Svg, EscapesNames) {
  const std::string svg = to_svg(std::vector{named("a\"</text>&\x01")});
  EXPECT_THAT(svg, HasSubstr("a&quot;&lt;/text&gt;&amp;<"));
}

TEST(Svg, DrawsNothingForNothing) {
  EXPECT_THAT(to_svg(std::vector<Timeline>{}), HasSubstr("</svg>"));
  const std::string svg = to_svg(std::vector{named("none")});
  EXPECT_THAT(svg, HasSubstr("nothing ran"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Svg, LeavesOutSpansWithoutLength) {
  Timeline timeline = gpipe_timeline(1, 1);
  timeline.ranks[0].push_back(make_span(Kind::kSendForward, 0, 1, 1));
  EXPECT_THAT(to_svg(std::vector{timeline}), Not(HasSubstr("SEND_F")));
}

TEST(Svg, ShadesAndLabelsVersionsOfTheWeights) {
  const std::string picture = to_svg(std::vector{asynchronous_timeline(3)});
  EXPECT_THAT(picture, HasSubstr(">B2@2<"));
  EXPECT_THAT(picture, HasSubstr("class=\"B2\""));
  EXPECT_THAT(picture, HasSubstr(".B2{fill:" + hex(kind_colour(Kind::kBackward, 2))));
  EXPECT_THAT(picture, HasSubstr("shades: versions of the weights"));
  EXPECT_THAT(picture, HasSubstr("whole time"));
  EXPECT_THAT(to_svg(std::vector{gpipe_timeline(2, 2)}), Not(HasSubstr("versions")));
}

}  // namespace
}  // namespace pipewright
