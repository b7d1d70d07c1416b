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

TEST(PlotSvg, NamesThatDoNotFitOneRowTakeAnother) {
  Plot plot{"title", "x", "y", {}};
  for (int i = 0; i < 6; ++i)
    plot.series.push_back({"a name of thirty letters, or so", {{0, 0}, {1, 1}}});
  const std::string svg = to_svg(plot);
  EXPECT_THAT(svg, HasSubstr("<rect x=\"80.0\" y=\"30\" width=\"12\""));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"80.0\" y=\"48\" width=\"12\""));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"80.0\" y=\"66\" width=\"12\""));
  plot.series.resize(2);
  EXPECT_THAT(to_svg(plot), Not(HasSubstr("y=\"48\" width=\"12\"")));
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
