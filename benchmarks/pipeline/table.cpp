#include "benchmarks/pipeline/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "benchmarks/common/headline.h"
#include "benchmarks/common/measure.h"
#include "pipewright/trace/plot.h"

namespace pipewright::bench {
namespace {

using Key = std::pair<int, int>;  // K, M

/// GPipe, table 2 (arXiv 1811.06965), transformer: throughput over that of K = 2, M = 1. Table 3,
/// the same without a fast link, has M = 32 alone.
const std::map<Key, double>& paper() {
  static const std::map<Key, double> kPaper = {{{2, 1}, 1},    {{4, 1}, 1.07}, {{8, 1}, 1.3},
                                               {{2, 4}, 1.7},  {{4, 4}, 3.2},  {{8, 4}, 4.8},
                                               {{2, 32}, 1.8}, {{4, 32}, 3.4}, {{8, 32}, 6.3}};
  return kPaper;
}

std::set<Key> keys_of(const std::vector<Line>& lines) {
  std::set<Key> keys;
  for (const Line& line : lines) keys.insert({line.cell.ranks, line.cell.micro_batches});
  return keys;
}

const Line* fastest(const std::vector<Line>& lines, Key key, const std::string& who,
                    const std::string& way = "") {
  const Line* best = nullptr;
  for (const Line& line : lines) {
    if (Key(line.cell.ranks, line.cell.micro_batches) != key || line.who != who) continue;
    if (!way.empty() && line.cell.way != way) continue;
    if (best == nullptr || line.measured.step < best->measured.step) best = &line;
  }
  return best;
}

/// Of the rounds, one after the other.
std::vector<double> values_of(const Line& line, double Measured::*value) {
  std::vector<double> values;
  for (const Measured& round : line.rounds) values.push_back(round.*value);
  return values;
}

double middle(const Line& line, double Measured::*value) { return median(values_of(line, value)); }

std::string shown(const Line* line) {
  if (line == nullptr) return "-";
  return fmt::format("{:.0f} ({})", 1e3 * line->measured.step, line->cell.schedule);
}

}  // namespace

std::string all_cells(const std::vector<Line>& lines) {
  std::string text =
      "| K | M | schedule | ranks are | ms a step | fastest | bubble | formula | of its stages | "
      "of its times | cores even | stolen | predicted ms | error |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Line& line : lines) {
    if (line.who != "ours") continue;
    const Measured& m = line.measured;
    text += fmt::format(
        "| {} | {} | {} | {} | {:.1f} | {:.1f} | {:.1f} % | {} | {:.3f} | {:.1f} % | {} | {} |\n",
        line.cell.ranks, line.cell.micro_batches, line.cell.schedule, line.cell.way, 1e3 * m.step,
        1e3 * m.fastest, 100 * line.bubble(),
        line.cell.way == "threads" ? fmt::format("{:.1f} % | {:.1f} % | {:.1f} %", 100 * m.formula,
                                                 100 * m.of_stages, 100 * m.of_times)
                                   : "- | - | -",
        m.evenness, 100 * m.stolen / (line.cell.ranks * m.step),
        m.predicted > 0 ? fmt::format("{:.1f}", 1e3 * m.predicted) : "-",
        m.predicted > 0 ? fmt::format("{:+.1f} %", 100 * (m.predicted / m.step - 1)) : "-");
  }
  return text;
}

std::string beside_the_cores(const std::vector<Line>& lines) {
  std::string text =
      "| K | M | schedule | rounds | ms a step | bubble | formula | cores alone, ms | bubble | "
      "slowest core over the mean | measured / cores "
      "|\n|---|---|---|---|---|---|---|---|---|---|---"
      "|\n";
  for (const Line& line : lines) {
    if (line.measured.cores == 0) continue;
    std::vector<double> bubbles;
    for (const Measured& round : line.rounds)
      bubbles.push_back(1 - round.busy / (line.cell.ranks * round.step));
    const double step = middle(line, &Measured::step), cores = middle(line, &Measured::cores);
    text += fmt::format(
        "| {} | {} | {} | {} | {:.1f} | {:.1f} % | {:.1f} % | {:.1f} | {:.1f} % | {:.3f} | {:.3f} "
        "|\n",
        line.cell.ranks, line.cell.micro_batches, line.cell.schedule, line.rounds.size(),
        1e3 * step, 100 * median(bubbles), 100 * middle(line, &Measured::formula), 1e3 * cores,
        100 * middle(line, &Measured::cores_bubble), middle(line, &Measured::slowest_core),
        step / cores);
  }
  return text;
}

std::string against_the_paper(const std::vector<Line>& lines) {
  const Line* base = fastest(lines, {2, 1}, "ours");
  std::string text =
      "| K | M | threads, ms | processes, ms | throughput over K=2 M=1 | GPipe's | peer, ms | "
      "peer / ours |\n|---|---|---|---|---|---|---|---|\n";
  for (const Key& key : keys_of(lines)) {
    const Line* best = fastest(lines, key, "ours");
    const Line* peer = fastest(lines, key, "peer");
    const auto published = paper().find(key);
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {} |\n", key.first, key.second,
        shown(fastest(lines, key, "ours", "threads")),
        shown(fastest(lines, key, "ours", "processes")),
        best && base ? fmt::format("{:.2f}", base->measured.step / best->measured.step) : "-",
        published != paper().end() ? fmt::format("{:g}", published->second) : "-", shown(peer),
        best && peer ? fmt::format("{:.2f}", peer->measured.step / best->measured.step) : "-");
  }
  return text;
}

std::string prediction_errors(const std::vector<Line>& lines) {
  std::vector<double> errors;
  for (const Line& line : lines) {
    if (line.measured.predicted > 0)
      errors.push_back(std::abs(line.measured.predicted / line.measured.step - 1));
  }
  if (errors.empty()) return "";
  return fmt::format("predictions of {} cells: off by {:.1f} % (median), {:.1f} % at worst\n",
                     errors.size(), 100 * median(errors),
                     100 * *std::max_element(errors.begin(), errors.end()));
}

void add_headlines(const std::vector<Line>& lines) {
  const Line* base = fastest(lines, {2, 1}, "ours");
  for (const Key& key : keys_of(lines)) {
    const Line* best = fastest(lines, key, "ours");
    const Line* peer = fastest(lines, key, "peer");
    const auto published = paper().find(key);
    if (best && base && published != paper().end() && key != Key(2, 1)) {
      const double ratio = base->measured.step / best->measured.step;
      add({fmt::format("throughput, K={} M={} over K=2 M=1", key.first, key.second),
           fmt::format("{:.2f}", ratio), fmt::format("GPipe's {:g}", published->second),
           ratio >= published->second});
    }
    if (best && peer) {
      const double ratio = peer->measured.step / best->measured.step;
      add({fmt::format("torch.distributed.pipelining over ours, K={} M={}", key.first, key.second),
           fmt::format("{:.2f}", ratio), "above 1", ratio > 1});
    }
  }
}

std::string plot(const std::vector<Line>& lines, const Sizes& sizes) {
  int most = 1;
  for (const Line& line : lines) most = std::max(most, line.cell.micro_batches);
  Plot plot{fmt::format("Throughput over ranks, M = {}", most),
            "ranks, a core each",
            "samples a second",
            {}};
  const auto add = [&](const std::string& name, const std::string& who, const std::string& way) {
    PlotSeries series{name, {}};
    for (const Key& key : keys_of(lines)) {
      if (key.second != most) continue;
      if (const Line* line = fastest(lines, key, who, way))
        series.points.emplace_back(key.first, sizes.batch / line->measured.step);
    }
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  };
  add("pipewright, threads", "ours", "threads");
  add("pipewright, processes", "ours", "processes");
  add("torch.distributed.pipelining", "peer", "");
  return to_svg(plot);
}

nlohmann::json to_json(const std::vector<Line>& lines) {
  nlohmann::json all = nlohmann::json::array();
  for (const Line& line : lines) {
    all.push_back({{"who", line.who},
                   {"ranks", line.cell.ranks},
                   {"micro_batches", line.cell.micro_batches},
                   {"schedule", line.cell.schedule},
                   {"way", line.cell.way},
                   {"link_bytes_per_second", line.cell.link},
                   {"recompute", line.cell.recompute},
                   {"step_seconds", line.measured.step},
                   {"fastest_seconds", line.measured.fastest},
                   {"busy_seconds", line.measured.busy},
                   {"page_faults", line.measured.faults},
                   {"formula_bubble", line.measured.formula},
                   {"bubble_of_stages", line.measured.of_stages},
                   {"bubble_of_times", line.measured.of_times},
                   {"predicted_seconds", line.measured.predicted},
                   {"cores_seconds", line.measured.cores},
                   {"cores_bubble", line.measured.cores_bubble},
                   {"slowest_core", line.measured.slowest_core},
                   {"evenness_of_cores", line.measured.evenness},
                   {"stolen_seconds", line.measured.stolen},
                   {"step_seconds_by_round", values_of(line, &Measured::step)},
                   {"cores_seconds_by_round", values_of(line, &Measured::cores)},
                   {"evenness_by_round", values_of(line, &Measured::evenness)},
                   {"parts", line.measured.parts}});
  }
  return all;
}

}  // namespace pipewright::bench
