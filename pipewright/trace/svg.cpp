#include "pipewright/trace/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "pipewright/trace/drawing.h"
#include "pipewright/trace/palette.h"
#include "pipewright/trace/xml.h"

namespace pipewright {
namespace {

constexpr double kMargin = 20;  // around everything
constexpr double kGutter = 62;  // for the names of ranks
constexpr double kTitle = 28;   // a timeline's heading
constexpr double kAxis = 30;    // below the last timeline
constexpr double kLegend = 24;
constexpr double kLetter = 7;       // about the width of a letter in a box
constexpr double kWideLetter = 12;  // `@`
constexpr double kLegendLetter = 6.6;

constexpr std::string_view kStyle = R"(<style>
svg{--card:#ffffff;--edge:#d9dfe7;--text:#1a1f28;--muted:#596373;--lane:#e9edf2;--grid:#d3dae3}
@media(prefers-color-scheme:dark){svg{--card:#171b22;--edge:#2a313c;--text:#e7eaf0;--muted:#9aa5b5;--lane:#262e39;--grid:#3a4452}}
text{font:12px ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:var(--text)}
.card{fill:var(--card);stroke:var(--edge)}.lane{fill:var(--lane)}.grid{stroke:var(--grid)}
.name{font-weight:650;font-size:14px}.muted{fill:var(--muted)}.box{font-size:11px;font-weight:600;text-anchor:middle}
.rank{text-anchor:end}.tick{text-anchor:middle;fill:var(--muted);font-size:11px}
)";

class SvgWriter {
 public:
  SvgWriter(std::span<const Timeline> timelines, const SvgOptions& options)
      : timelines_(timelines), options_(options), longest_(longest(timelines)) {
    for (const Timeline& timeline : timelines) {
      most_chunks_ = std::max(most_chunks_, num_chunks(timeline));
      versions_ = versions_ || has_versions(timeline);
    }
  }

  std::string draw() {
    double y = kMargin;
    for (const Timeline& timeline : timelines_) y = draw_timeline(timeline, y);
    if (longest_ > 1e-300) y = draw_axis(y);
    y = draw_legend(y) + kMargin - 6;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n<title>{2}</title>\n{3}{4}</style>\n"
        "<rect class=\"card\" x=\".5\" y=\".5\" width=\"{5:.0f}\" height=\"{6:.0f}\" "
        "rx=\"10\"/>\n{7}</svg>\n",
        options_.width, y, title(), kStyle, colour_rules(), options_.width - 1, y - 1, body_);
  }

 private:
  double plot_left() const { return kMargin + kGutter; }
  double plot_width() const { return std::max(10.0, options_.width - 2 * kMargin - kGutter); }
  double x_of(double time) const { return plot_left() + time / longest_ * plot_width(); }
  double pitch() const { return options_.lane_height + 4; }

  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
    body_ += '\n';
  }

  /// What a screen reader says.
  std::string title() const {
    std::string out;
    for (const Timeline& timeline : timelines_) {
      out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", escape_xml(timeline.name),
                         summary(timeline));
    }
    return out;
  }

  /// `.F1` colours the boxes of a kind's shade, `.tF1` their text.
  std::string colour_rules() const {
    std::string out;
    for (const Kind kind : kinds_in(timelines_)) {
      for (int shade = 0; shade < (versions_ ? kNumShades : std::min(most_chunks_, kNumShades));
           ++shade) {
        const Rgb fill = kind_colour(kind, shade);
        out += fmt::format(".{0}{1}{{fill:{2}}}.t{0}{1}{{fill:{3}}}\n", kind_name(kind), shade,
                           hex(fill), hex(text_colour(fill)));
      }
    }
    return out;
  }

  double draw_timeline(const Timeline& timeline, double y) {
    line(
        R"(<text x="{:.0f}" y="{:.1f}"><tspan class="name">{}</tspan><tspan class="muted" dx="12">{}</tspan></text>)",
        kMargin, y + 13, escape_xml(timeline.name), summary(timeline));
    y += kTitle;
    const Extent all = extent(timeline);
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank, y += pitch()) {
      line(R"(<text class="rank muted" x="{:.0f}" y="{:.1f}">rank {}</text>)", plot_left() - 10,
           y + options_.lane_height / 2 + 4, rank);
      if (!all.empty()) draw_rank(timeline.ranks[rank], all, y);
    }
    return y + 14;
  }

  void draw_rank(const std::vector<Span>& rank, const Extent& all, double y) {
    line(R"(<rect class="lane" x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}"/>)",
         plot_left(), y, x_of(all.length()) - plot_left(), options_.lane_height);
    const std::vector<int> stages = stages_of(rank);
    for (const Span& span : rank) {
      if (!drawable(span) || span.duration() <= 0) continue;
      const double left = x_of(span.start - all.start);
      const double width = x_of(span.end - all.start) - left;
      draw_box(span, shade_of(span, stages) % kNumShades, left, width, y);
    }
  }

  /// The label, or the kind alone, or nothing, as there is room.
  std::string box_label(const Span& span, double width) const {
    if (options_.lane_height < 12) return "";
    for (const std::string& label :
         {span_label(span), label_without_version(span), std::string(kind_name(span.kind))}) {
      const double wide = label.find('@') == std::string::npos ? 0 : kWideLetter - kLetter;
      if (kLetter * static_cast<double>(label.size()) + wide + 3 <= width) return label;
    }
    return "";
  }

  void draw_box(const Span& span, int shade, double left, double width, double y) {
    // A gap of a pixel keeps neighbours of one kind apart; slivers have none to give.
    line(R"(<rect class="{}{}" x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}"{}/>)",
         kind_name(span.kind), shade, left, y, width > 4 ? width - 1 : std::max(width, 0.2),
         options_.lane_height, width > 8 ? " rx=\"2\"" : "");
    const std::string label = box_label(span, width);
    if (label.empty()) return;
    line(R"(<text class="box t{}{}" x="{:.2f}" y="{:.1f}">{}</text>)", kind_name(span.kind), shade,
         left + (width - 1) / 2, y + options_.lane_height / 2 + 4, label);
  }

  double draw_axis(double y) {
    line(R"(<path class="grid" d="M{:.1f} {:.1f}h{:.1f}"/>)", plot_left(), y - 6, plot_width());
    const double step = tick_step(longest_, static_cast<int>(plot_width() / 70));
    for (int tick = 0; tick * step <= longest_ * (1 + 1e-9); ++tick) {
      const double x = x_of(tick * step);
      line(
          R"(<path class="grid" d="M{:.2f} {:.1f}v5"/><text class="tick" x="{:.2f}" y="{:.1f}">{}</text>)",
          x, y - 6, x, y + 12, format_time(tick * step, timelines_.front().time_unit));
    }
    return y + kAxis;
  }

  double draw_legend(double y) {
    double x = plot_left();
    for (const Kind kind : kinds_in(timelines_))
      legend_entry(x, y, fmt::format("{}0", kind_name(kind)), kind_words(kind));
    legend_entry(x, y, "lane", "idle");
    if (versions_) legend_entry(x, y, "", "shades: versions of the weights");
    if (most_chunks_ > 1) legend_entry(x, y, "", "lighter: a rank's later stages");
    return y + kLegend;
  }

  void legend_entry(double& x, double& y, const std::string& style, std::string_view words) {
    const double width =
        (style.empty() ? 0 : 19) + kLegendLetter * static_cast<double>(words.size());
    if (x + width > options_.width - kMargin && x > plot_left()) {
      x = plot_left();
      y += kLegend;
    }
    if (!style.empty())
      line(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="13" height="13" rx="2"/>)", style, x,
           y);
    line(R"(<text class="muted" x="{:.1f}" y="{:.1f}">{}</text>)", x + (style.empty() ? 0 : 19),
         y + 11, words);
    x += width + 18;
  }

  std::span<const Timeline> timelines_;
  SvgOptions options_;
  double longest_ = 0;
  int most_chunks_ = 1;
  bool versions_ = false;
  std::string body_;
};

}  // namespace

std::string to_svg(std::span<const Timeline> timelines, const SvgOptions& options) {
  return SvgWriter(timelines, options).draw();
}

}  // namespace pipewright
