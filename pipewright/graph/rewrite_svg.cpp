#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "pipewright/base/error.h"
#include "pipewright/graph/rewrite.h"

// The picture: shared operations on the left, a column a copy, aggregation below.
//
//     shared      micro-batch 0   micro-batch 1
//     [t]  - - -> [linear]        [linear]
//                 [relu]          [relu]
//                 [linear]        [linear]
//     [            aggregation                ]

namespace pipewright {
namespace {

constexpr int kWidth = 190;
constexpr int kGap = 60;  // for the arcs beside a column
constexpr int kHeight = 24;
constexpr int kStep = 36;
constexpr int kTop = 64;
constexpr int kMargin = 20;
constexpr int kMostCopies = 4;
constexpr std::size_t kLetters = 26;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string shortened(const std::string& text) {
  return text.size() <= kLetters ? text : text.substr(0, kLetters - 3) + "...";
}

/// The copies to draw: of many the first three and the last.
std::vector<int> drawn(int micro_batches) {
  std::vector<int> copies;
  for (int i = 0; i < micro_batches; ++i) {
    if (micro_batches <= kMostCopies || i < kMostCopies - 1 || i + 1 == micro_batches)
      copies.push_back(i);
  }
  return copies;
}

class Picture {
 public:
  void label(int x, int y, const std::string& text, const char* style = "head") {
    body_ +=
        fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>\n", style, x, y, escaped(text));
  }

  void box(int x, int y, int width, const std::string& style, const std::string& text,
           const std::string& title) {
    body_ += fmt::format(
        "<g><title>{}</title><rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "rx=\"4\"/><text x=\"{}\" y=\"{}\">{}</text></g>\n",
        escaped(title), style, x, y, width, kHeight, x + 8, y + 16, escaped(text));
    right_ = std::max(right_, x + width);
    bottom_ = std::max(bottom_, y + kHeight);
  }

  void path(const std::string& style, const std::string& data) {
    body_ += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", style, data);
  }

  int bottom() const { return bottom_; }

  std::string text() const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\">\n<style>text{{font:12px sans-serif;fill:#1f2430}}"
        ".head{{font-weight:bold}}rect{{stroke:#5b6475;stroke-width:1}}.shared{{fill:#f2e3bf}}"
        ".copy{{fill:#d5e4f7}}.sum{{fill:#d9efd9}}path{{fill:none;stroke:#5b6475}}"
        ".skip{{stroke:#3a6fb0}}.use{{stroke:#b08a3a;stroke-dasharray:4 3}}</style>\n"
        "<rect x=\"0\" y=\"0\" width=\"{0}\" height=\"{1}\" style=\"fill:#ffffff;stroke:none\"/>\n"
        "{2}</svg>\n",
        right_ + kGap, bottom_ + kMargin, body_);
  }

 private:
  std::string body_;
  int right_ = 0;
  int bottom_ = 0;
};

struct Place {
  int x = 0;
  int y = 0;
};

/// The operations of one kind below each other, and where each value is made.
std::map<std::string, Place> column(const std::vector<GraphLine>& lines, bool replicated, int x,
                                    Picture* picture) {
  std::map<std::string, Place> makers;
  int y = kTop;
  for (const GraphLine& line : lines) {
    if (line.replicated != replicated) continue;
    for (const std::string& result : line.results) makers[result] = {x, y};
    const std::string title = fmt::format("{} ({})", line.name, line.source);
    picture->box(x, y, kWidth, replicated ? "copy" : "shared", shortened(line.name), title);
    y += kStep;
  }
  return makers;
}

/// From an operation to the next one down; to one further down beside the column.
void connect(const Place& from, const Place& to, Picture* picture) {
  if (from.x != to.x) {
    picture->path("use", fmt::format("M{} {} L{} {}", from.x + kWidth, from.y + kHeight / 2, to.x,
                                     to.y + kHeight / 2));
  } else if (to.y - from.y == kStep) {
    const int middle = from.x + kWidth / 2;
    picture->path("flow", fmt::format("M{} {} L{} {}", middle, from.y + kHeight, middle, to.y));
  } else {
    const int edge = from.x + kWidth;
    const int out = edge + std::min(kGap - 8, 8 + (to.y - from.y) / 12);
    picture->path("skip", fmt::format("M{} {} C{} {} {} {} {} {}", edge, from.y + kHeight / 2, out,
                                      from.y + kHeight / 2, out, to.y + kHeight / 2, edge,
                                      to.y + kHeight / 2));
  }
}

}  // namespace

std::string MicroBatchView::svg(int micro_batches) const {
  if (micro_batches < 1) {
    throw InvalidArgument(
        "graph", fmt::format("cannot draw {} micro-batches; use one at least", micro_batches));
  }
  Picture picture;
  picture.label(kMargin, kTop - 14, "shared, once");
  const auto shared_makers = column(lines_, false, kMargin, &picture);
  int x = kMargin;
  const std::vector<int> copies = drawn(micro_batches);
  for (const int copy : copies) {
    x += kWidth + kGap;
    picture.label(x, kTop - 14, fmt::format("micro-batch {}", copy));
    auto makers = column(lines_, true, x, &picture);
    makers.insert(shared_makers.begin(), shared_makers.end());
    int y = kTop;
    for (const GraphLine& line : lines_) {
      if (!line.replicated) continue;
      for (const std::string& argument : line.arguments) {
        const auto maker = makers.find(argument);
        if (maker != makers.end()) connect(maker->second, {x, y}, &picture);
      }
      y += kStep;
    }
  }
  picture.label(kMargin, kTop - 38,
                fmt::format("{} micro-batches{}", micro_batches,
                            static_cast<int>(copies.size()) < micro_batches
                                ? fmt::format(", {} of them drawn", copies.size())
                                : ""));
  int y = picture.bottom() + kStep;
  picture.label(kMargin, y - 8, "aggregation, in the order of micro-batches");
  for (const std::string& line : aggregation(micro_batches)) {
    picture.box(kMargin, y, x + kWidth - kMargin, "sum", line, line);
    y += kHeight + 4;
  }
  return picture.text();
}

}  // namespace pipewright
