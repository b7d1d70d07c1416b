#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "pipewright/base/units.h"
#include "pipewright/run/progress.h"
#include "pipewright/run/report.h"
#include "pipewright/run/what_if.h"

namespace pipewright {
namespace {

std::string plural(std::int64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string bytes_text(const std::vector<std::int64_t>& bytes) {
  std::vector<std::string> texts;
  texts.reserve(bytes.size());
  for (const std::int64_t each : bytes) texts.push_back(format_bytes(static_cast<double>(each)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

void row(std::string* out, std::string_view name, const std::string& value) {
  *out += fmt::format("  {:<21}{}\n", name, value);
}

std::string against(const std::string& value, const std::string& predicted) {
  return predicted.empty() ? value : fmt::format("{} (predicted {})", value, predicted);
}

std::string title(const RunReport& report) {
  const Headline& headline = report.headline;
  std::string out = fmt::format("{}: {} after {}", report.run.facts.name, headline.state,
                                plural(headline.steps, "step", "steps"));
  if (report.run.plan) {
    const Plan& plan = *report.run.plan;
    out += fmt::format("; {} over {}, {} of {}", plan.schedule, plural(plan.ranks, "rank", "ranks"),
                       plural(plan.micro_batches, "micro-batch", "micro-batches"),
                       plan.micro_batch_size);
  }
  return out + "\n\n";
}

std::string figures(const Headline& headline) {
  std::string out;
  if (headline.final_loss)
    row(&out, "loss",
        fmt::format("{:.4f}, from {:.4f}", *headline.final_loss, *headline.first_loss));
  for (const auto& [name, summary] : headline.validation)
    row(&out, "validation " + name,
        fmt::format("{:.4f}, best {:.4f} at step {}", summary.last, summary.best,
                    summary.best_step));
  row(&out, "samples/s", format_number(headline.samples_per_second));
  row(&out, "step",
      against(
          format_seconds(headline.step_seconds),
          headline.predicted_step_seconds ? format_seconds(*headline.predicted_step_seconds) : ""));
  row(&out, "bubble",
      against(fmt::format("{:.1f}%", 100 * headline.bubble_fraction),
              headline.predicted_bubble_fraction
                  ? fmt::format("{:.1f}%", 100 * *headline.predicted_bubble_fraction)
                  : ""));
  if (!headline.peak_bytes.empty())
    row(&out, "peak by rank",
        against(bytes_text(headline.peak_bytes), bytes_text(headline.predicted_peak_bytes)));
  if (headline.skipped_steps > 0)
    row(&out, "skipped", plural(headline.skipped_steps, "step", "steps"));
  row(&out, "training time", format_duration(headline.training_seconds));
  return out;
}

std::string breakdown_text(const RunReport& report) {
  std::vector<BreakdownRow> rows;
  if (report.measured) rows.push_back({"  measured", *report.measured});
  if (report.predicted) rows.push_back({"  predicted", *report.predicted});
  return rows.empty() ? "" : "\nWhere the time went\n" + breakdown_table(rows);
}

std::string suggestion_text(const Suggestion& one, bool knows_bytes, int width) {
  std::string figure = fmt::format("  {:>+5.1f}%  ", 100 * (one.speedup - 1));
  std::string out = figure + one.title + "\n";
  const std::string indent(figure.size(), ' ');
  out += fmt::format("{}step {}, bubble {:.1f}%", indent, format_seconds(one.step_seconds),
                     100 * one.plan.bubble_fraction);
  if (knows_bytes)
    out += fmt::format(", peak {}", format_bytes(static_cast<double>(most_bytes(one.plan))));
  out += fmt::format("\n{}--set {}\n", indent, fmt::join(one.settings, " --set "));
  if (!one.caveat.empty() && width > 40) out += fmt::format("{}({})\n", indent, one.caveat);
  return out;
}

std::string advice_text(const Advice& advice, int width) {
  std::string out = "\nWhat would be faster, by the simulator with the measured times\n";
  if (!advice.unknown.empty()) return out + fmt::format("  Not known: {}.\n", advice.unknown);
  if (advice.faster.empty()) out += "  Nothing that it knows, by 1 % or more.\n";
  for (const Suggestion& one : advice.faster)
    out += suggestion_text(one, advice.knows_bytes, width);
  if (!advice.leaner.empty()) out += "\nWhat would take less memory\n";
  for (const Suggestion& one : advice.leaner)
    out += suggestion_text(one, advice.knows_bytes, width);
  return out;
}

}  // namespace

std::string to_text(const RunReport& report, int width) {
  std::string out = title(report) + figures(report.headline) + breakdown_text(report) +
                    advice_text(report.advice, width);
  if (!report.run.notes.empty()) out += "\n";
  for (const std::string& note : report.run.notes) out += fmt::format("Note: {}\n", note);
  return out;
}

}  // namespace pipewright
