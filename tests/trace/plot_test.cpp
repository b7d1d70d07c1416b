#include "pipewright/trace/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace pipewright {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(PlotSvg, PutsPointsInTheirPlaces) {
  const std::string svg = to_svg(
      Plot{.title = "t", .x_label = "x", .y_label = "y", .series = {{"a", {{0, 0}, {10, 5}}}}});
  // The corners: 0, 0 at the lower left, the greatest values at the upper right.
  EXPECT_THAT(svg, HasSubstr("points=\"80.0,400.0 740.0,50.0 \""));
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"740.0\" cy=\"50.0\""));
  EXPECT_THAT(svg, HasSubstr(">10</text>"));
  EXPECT_THAT(svg, HasSubstr(">0.5</text>"));
}

TEST(PlotSvg, EscapesNamesAndLeavesOutWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = to_svg(Plot{.title = "a < b & c",
                                      .x_label = "",
                                      .y_label = "",
                                      .series = {{"<s>", {{1, 1}, {nan, 2}, {2, 2}}}}});
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, HasSubstr("&lt;s&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(PlotSvg, DrawsNothingAndOnePoint) {
  EXPECT_THAT(to_svg(Plot{}), HasSubstr("</svg>"));
  EXPECT_THAT(to_svg(Plot{.title = "", .x_label = "", .y_label = "", .series = {{"p", {{3, 3}}}}}),
              HasSubstr("<circle"));
}

TEST(PlotSvg, AxesFarFromZeroDoNotStartThere) {
  const std::string svg = to_svg(
      {.title = "", .x_label = "", .y_label = "", .series = {{"a", {{1000, 90}, {1010, 100}}}}});
  EXPECT_THAT(svg, HasSubstr(">1000</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">0</text>")));
}

}  // namespace
}  // namespace pipewright
