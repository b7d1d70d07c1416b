#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pipewright {

/// One line or cloud of points of a plot.
struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool line = true;     // joined in their order
  bool markers = true;  // a dot each
};

/// Points over two axes. Axes start at 0 unless everything is far from it.
struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<PlotSeries> series;
};

/// A picture that stands alone. Points that are not finite are left out.
std::string to_svg(const Plot& plot);

}  // namespace pipewright
