#include "pipewright/trace/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "pipewright/base/units.h"
#include "pipewright/trace/xml.h"

namespace pipewright {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 460;
constexpr double kLeft = 80;
constexpr double kRight = 20;
constexpr double kTop = 50;
constexpr double kBottom = 60;
constexpr std::array<std::string_view, 6> kColors = {"#1f6fb4", "#d1495b", "#2e8b57",
                                                     "#8a5fbf", "#c77d1e", "#4a4a4a"};

/// 1, 2 or 5 times a power of ten, so that there are four to ten of them.
double nice_step(double range) {
  const double power = std::pow(10, std::floor(std::log10(range)));
  for (const double step : {0.1, 0.2, 0.5}) {
    if (range / (power * step) <= 10) return power * step;
  }
  return power;
}

/// One direction: from values to places.
class Axis {
 public:
  Axis(double least, double most, double from, double to) : from_(from), to_(to) {
    if (!(least <= most)) least = 0, most = 1;     // no points
    if (least > 0 && least < most / 2) least = 0;  // near enough to start at 0
    if (most == least) most = least + std::max(1.0, std::abs(least));
    step_ = nice_step(most - least);
    least_ = std::floor(least / step_) * step_;
    most_ = std::ceil(most / step_) * step_;
  }

  double at(double value) const {
    return from_ + (value - least_) / (most_ - least_) * (to_ - from_);
  }

  std::vector<double> ticks() const {
    std::vector<double> ticks;
    const int count = static_cast<int>(std::lround((most_ - least_) / step_));
    for (int i = 0; i <= count; ++i) ticks.push_back(least_ + i * step_);
    return ticks;
  }

 private:
  double from_, to_;
  double least_ = 0, most_ = 1, step_ = 1;
};

bool finite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

template <typename Member>
Axis axis_of(const Plot& plot, Member member, double from, double to) {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (const PlotSeries& series : plot.series) {
    for (const auto& point : series.points) {
      if (!finite(point)) continue;
      least = std::min(least, point.*member);
      most = std::max(most, point.*member);
    }
  }
  return {least, most, from, to};
}

std::string text(double x, double y, std::string_view anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escape_xml(words));
}

std::string grid(const Axis& x, const Axis& y, double top) {
  std::string svg;
  const double bottom = kHeight - kBottom;
  for (const double value : x.ticks()) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" "
        "stroke=\"#e4e4e4\"/>\n",
        x.at(value), top, bottom);
    svg += text(x.at(value), bottom + 18, "middle", format_number(value));
  }
  for (const double value : y.ticks()) {
    svg += fmt::format(
        "<line x1=\"{1}\" y1=\"{0:.1f}\" x2=\"{2}\" y2=\"{0:.1f}\" "
        "stroke=\"#e4e4e4\"/>\n",
        y.at(value), kLeft, kWidth - kRight);
    svg += text(kLeft - 8, y.at(value) + 4, "end", format_number(value));
  }
  return svg;
}

std::string draw(const PlotSeries& series, std::string_view color, const Axis& x, const Axis& y) {
  std::string line;
  std::string dots;
  for (const auto& point : series.points) {
    if (!finite(point)) continue;
    line += fmt::format("{:.1f},{:.1f} ", x.at(point.first), y.at(point.second));
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"><title>{}: {}, "
        "{}</title></circle>\n",
        x.at(point.first), y.at(point.second), color, escape_xml(series.name),
        format_number(point.first), format_number(point.second));
  }
  std::string svg;
  if (series.line && !line.empty()) {
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                       line, color);
  }
  return series.markers ? svg + dots : svg;
}

/// In as many rows as the names need.
struct Legend {
  std::string svg;
  double height = 0;  // of the rows after the first
};

Legend legend(const Plot& plot) {
  constexpr double kRow = 18;
  Legend made;
  double x = kLeft;
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    const double width = 40 + 7.5 * static_cast<double>(plot.series[i].name.size());
    if (x > kLeft && x + width > kWidth) {
      x = kLeft;
      made.height += kRow;
    }
    made.svg +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x,
                    30 + made.height, kColors[i % kColors.size()]);
    made.svg += text(x + 17, 41 + made.height, "start", plot.series[i].name);
    x += width;
  }
  return made;
}

}  // namespace

std::string to_svg(const Plot& plot) {
  using Point = std::pair<double, double>;
  const Axis x = axis_of(plot, &Point::first, kLeft, kWidth - kRight);
  const Legend names = legend(plot);
  const double top = kTop + names.height;
  const Axis y = axis_of(plot, &Point::second, kHeight - kBottom, top);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += text(kWidth / 2, 20, "middle", plot.title);
  svg += names.svg + grid(x, y, top);
  for (std::size_t i = 0; i < plot.series.size(); ++i)
    svg += draw(plot.series[i], kColors[i % kColors.size()], x, y);
  svg += text(kLeft + (kWidth - kLeft - kRight) / 2, kHeight - 16, "middle", plot.x_label);
  svg += fmt::format(
      "<text transform=\"translate(18 {:.1f}) rotate(-90)\" "
      "text-anchor=\"middle\">{}</text>\n",
      top + (kHeight - top - kBottom) / 2, escape_xml(plot.y_label));
  return svg + "</svg>\n";
}

}  // namespace pipewright
