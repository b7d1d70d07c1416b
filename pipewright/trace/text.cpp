#include "pipewright/trace/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>

#include "pipewright/trace/drawing.h"
#include "pipewright/trace/palette.h"

namespace pipewright {
namespace {

constexpr int kIdle = -1;

/// How time maps to columns.
struct Scale {
  Extent extent;
  int columns = 0;

  double column_time() const { return extent.length() / columns; }
};

/// One letter a kind: a column may be all the room there is.
char letter(Kind kind) {
  static constexpr std::array<char, kAllKinds.size()> kLetters = {'F', 'B', 'I', 'W', 'R', '>',
                                                                  '<', ')', '(', '+', 'S'};
  return kLetters[static_cast<std::size_t>(kind)];
}

char letter(Kind kind, int shade) {
  const char upper = letter(kind);
  return shade % 2 == 0 ? upper : static_cast<char>(std::tolower(upper));
}

/// The greatest common divisor of `a` and `b`, taking what is below `tolerance` for 0.
double common_divisor(double a, double b, double tolerance) {
  while (b > tolerance) {
    double rest = std::fmod(a, b);
    if (b - rest < tolerance) rest = 0;
    a = b;
    b = rest;
  }
  return a;
}

/// How many of the greatest unit that divides all starts and ends there are, unless more than
/// `most`.
std::optional<int> count_units(const Timeline& timeline, const Extent& extent, int most) {
  const double tolerance = 1e-6 * extent.length() / most;
  double unit = extent.length();
  for (const auto& rank : timeline.ranks) {
    for (const Span& span : rank) {
      if (!drawable(span)) continue;
      unit = common_divisor(unit, span.start - extent.start, tolerance);
      unit = common_divisor(unit, span.end - extent.start, tolerance);
      if (unit * (most + 0.5) < extent.length()) return std::nullopt;
    }
  }
  return static_cast<int>(std::lround(extent.length() / unit));
}

std::size_t longest_label(const Timeline& timeline) {
  int most = 0;
  int version = -1;
  for (const auto& rank : timeline.ranks) {
    for (const Span& span : rank) {
      most = std::max(most, span.micro_batch);
      version = std::max(version, span.version);
    }
  }
  const std::size_t behind = version < 0 ? 0 : 1 + std::to_string(version).size();
  return 1 + std::to_string(most).size() + behind;
}

Scale make_scale(const Timeline& timeline, int columns) {
  Scale scale{extent(timeline), columns};
  if (const auto units = count_units(timeline, scale.extent, columns)) {
    // Wider than a label and a gap would only push the end of the step off the screen.
    const int most = static_cast<int>(longest_label(timeline)) + 1;
    scale.columns = *units * std::min(columns / *units, most);
  }
  return scale;
}

/// What fills a column: time by kind, and by kind the span that fills most of it.
struct Column {
  std::array<double, kAllKinds.size()> time{};
  std::array<double, kAllKinds.size()> most{};
  std::array<int, kAllKinds.size()> span{};
  double idle = 0;

  void add(Kind kind, int index, double amount) {
    const auto k = static_cast<std::size_t>(kind);
    time[k] += amount;
    idle -= amount;
    if (amount > most[k]) {
      most[k] = amount;
      span[k] = index;
    }
  }

  int winner() const {
    const auto k =
        static_cast<std::size_t>(std::max_element(time.begin(), time.end()) - time.begin());
    return time[k] > 0 && time[k] >= idle * (1 - 1e-6) ? span[k] : kIdle;
  }
};

/// By column, the index of the span to show, or kIdle.
std::vector<int> columns_of(const std::vector<Span>& rank, const Scale& scale) {
  const double width = scale.column_time();
  Column empty;
  empty.idle = width;
  std::vector<Column> columns(static_cast<std::size_t>(scale.columns), empty);
  for (std::size_t i = 0; i < rank.size(); ++i) {
    if (!drawable(rank[i])) continue;
    const double from = (rank[i].start - scale.extent.start) / width;
    const double to = (rank[i].end - scale.extent.start) / width;
    const int last = std::min(scale.columns, static_cast<int>(std::ceil(to)));
    for (int c = static_cast<int>(from); c < last; ++c) {
      const double share = std::min(to, c + 1.0) - std::max(from, static_cast<double>(c));
      columns[static_cast<std::size_t>(c)].add(rank[i].kind, static_cast<int>(i), share * width);
    }
  }
  std::vector<int> spans;
  for (const Column& column : columns) spans.push_back(column.winner());
  return spans;
}

std::string on_colour(const std::string& text, Kind kind, int shade) {
  const Rgb fill = kind_colour(kind, shade);
  return fmt::format("\x1b[48;5;{}m\x1b[38;5;{}m{}\x1b[0m", terminal_colour(fill),
                     terminal_colour(text_colour(fill)), text);
}

/// `F3@1`, `F3` or `F`, as there is room.
std::string draw_box(const Span& span, int shade, std::size_t width, bool colour) {
  std::string label(1, letter(span.kind, shade));
  const std::string number = span.micro_batch < 0 ? "" : std::to_string(span.micro_batch);
  const std::string version = span.version < 0 ? "" : fmt::format("@{}", span.version);
  if (label.size() + number.size() <= width) label += number;
  if (label.size() + version.size() <= width && label.size() > number.size()) label += version;
  label.resize(width, colour ? ' ' : '-');
  return colour ? on_colour(label, span.kind, shade) : label;
}

std::string draw_idle(std::size_t width, bool colour) {
  const std::string dots(width, '.');
  return colour ? "\x1b[2m" + dots + "\x1b[0m" : dots;
}

std::string draw_rank(const std::vector<Span>& rank, const Scale& scale, bool colour) {
  const std::vector<int> stages = stages_of(rank);
  const std::vector<int> columns = columns_of(rank, scale);
  std::string out;
  for (auto at = columns.begin(); at != columns.end();) {
    const auto end = std::find_if(at, columns.end(), [at](int other) { return other != *at; });
    const auto width = static_cast<std::size_t>(end - at);
    if (*at == kIdle) {
      out += draw_idle(width, colour);
    } else {
      const Span& span = rank[static_cast<std::size_t>(*at)];
      out += draw_box(span, shade_of(span, stages), width, colour);
    }
    at = end;
  }
  return out;
}

std::string draw_axis(const Timeline& timeline, const Scale& scale) {
  constexpr int kColumnsATick = 12;
  const double step = tick_step(scale.extent.length(), std::max(scale.columns / kColumnsATick, 1));
  std::string line;
  for (int tick = 0;; ++tick) {
    const auto column = static_cast<std::size_t>(std::lround(tick * step / scale.column_time()));
    const std::string label = format_time(tick * step, timeline.time_unit);
    if (column + label.size() > static_cast<std::size_t>(scale.columns)) return line;
    if (tick > 0 && line.size() >= column) continue;  // the one before is too long
    line.resize(column, ' ');
    line += label;
  }
}

std::string draw_legend(const Timeline& timeline, const TextOptions& options) {
  std::string out;
  std::size_t column = 0;
  const auto add = [&](const std::string& mark, std::string_view words) {
    const std::size_t width = 2 + words.size();
    if (column > 0 && column + 2 + width > static_cast<std::size_t>(options.width)) {
      out += '\n';
      column = 0;
    }
    out += fmt::format("{}{} {}", column > 0 ? "  " : "", mark, words);
    column += width + (column > 0 ? 2 : 0);
  };
  for (const Kind kind : kinds_in(std::span(&timeline, 1))) {
    const std::string mark(1, letter(kind));
    add(options.colour ? on_colour(mark, kind, 0) : mark, kind_words(kind));
  }
  add(draw_idle(1, options.colour), "idle");
  const int chunks = num_chunks(timeline);
  if (has_versions(timeline)) {
    out += options.colour ? "\nshades take turns over versions of the weights"
                          : "\nupper and lower case take turns over versions of the weights";
  }
  if (chunks == 2) out += "\nupper case: a rank's first stage, lower case: its second";
  if (chunks > 2) {
    out += fmt::format("\nupper and lower case take turns over a rank's {} stages", chunks);
  }
  return out + '\n';
}

std::string draw_ranks(const Timeline& timeline, const Scale& scale, std::size_t digits,
                       const TextOptions& options) {
  const std::size_t num_ranks = timeline.ranks.size();
  std::string out;
  const std::size_t most = static_cast<std::size_t>(std::max(options.max_ranks, 2));
  const std::size_t head = num_ranks > most ? (most + 1) / 2 : num_ranks;
  const std::size_t tail = num_ranks > most ? num_ranks - most / 2 : num_ranks;
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    if (rank == head) {
      out += fmt::format("... {} ranks left out ...\n", tail - head);
      rank = tail;
    }
    out += fmt::format("rank {:>{}} |{}|\n", rank, digits,
                       draw_rank(timeline.ranks[rank], scale, options.colour));
  }
  return out;
}

}  // namespace

std::string draw_text(const Timeline& timeline, const TextOptions& options) {
  std::string out = options.colour ? fmt::format("\x1b[1m{}\x1b[0m", timeline.name) : timeline.name;
  out += fmt::format(": {}\n", summary(timeline));
  if (extent(timeline).empty()) return out;

  const std::size_t digits = std::to_string(timeline.ranks.size() - 1).size();
  const std::size_t margin = 5 + digits + 2;  // `rank 12 |`
  const int columns = std::max(10, options.width - static_cast<int>(margin) - 1);
  const Scale scale = make_scale(timeline, columns);

  out += draw_ranks(timeline, scale, digits, options);
  out += std::string(margin, ' ') + draw_axis(timeline, scale) + '\n';
  return out + draw_legend(timeline, options);
}

}  // namespace pipewright
