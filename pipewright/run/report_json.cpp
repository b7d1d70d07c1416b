#include "pipewright/run/report_json.h"

#include <cmath>

#include "pipewright/run/report.h"
#include "pipewright/run/what_if.h"

namespace pipewright {
namespace {

using nlohmann::ordered_json;

/// Null for what is not known or no finite number.
ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}
ordered_json number(const std::optional<double>& value) {
  return value ? number(*value) : ordered_json(nullptr);
}

ordered_json shares_json(const std::optional<Breakdown>& parts) {
  if (!parts) return nullptr;
  ordered_json shares;
  for (const BreakdownPart& part : kBreakdownParts)
    shares[std::string(part.name)] = parts->total > 0 ? *parts.*part.value / parts->total : 0.0;
  return shares;
}

ordered_json validation_json(const Headline& headline) {
  auto out = ordered_json::object();
  for (const auto& [name, summary] : headline.validation)
    out[name] = {{"last", number(summary.last)},
                 {"best", number(summary.best)},
                 {"best_step", summary.best_step}};
  return out;
}

ordered_json rank_json(const RankReport& rank) {
  return {{"stages", rank.stages},
          {"compute_seconds", rank.compute},
          {"recompute_seconds", rank.recompute},
          {"update_seconds", rank.update},
          {"communication_seconds", rank.communication},
          {"idle_seconds", rank.idle}};
}

ordered_json stage_json(const StageReport& stage) {
  const StageCost& cost = stage.cost;
  // One of them is 0: a schedule has whole backwards or halves.
  const double backward = cost.backward + cost.backward_input + cost.backward_weight;
  return {{"rank", stage.rank},           {"num_layers", stage.num_layers},
          {"layers", stage.layers},       {"forward_seconds", cost.forward},
          {"backward_seconds", backward}, {"recompute_seconds", cost.recompute},
          {"update_seconds", cost.step}};
}

ordered_json plan_json(const Plan& plan) {
  return {{"schedule", plan.schedule},
          {"ranks", plan.ranks},
          {"chunks", plan.chunks},
          {"micro_batches", plan.micro_batches},
          {"micro_batch_size", plan.micro_batch_size},
          {"global_batch", plan.global_batch},
          {"sizes", plan.sizes},
          {"recompute", plan.recompute()}};
}

ordered_json suggestions_json(const std::vector<Suggestion>& suggestions, bool knows_bytes) {
  auto out = ordered_json::array();
  for (const Suggestion& one : suggestions) {
    ordered_json entry = {{"kind", one.kind},
                          {"title", one.title},
                          {"settings", one.settings},
                          {"caveat", one.caveat},
                          {"plan", plan_json(one.plan)},
                          {"step_seconds", one.step_seconds},
                          {"speedup", one.speedup},
                          {"bubble_fraction", one.plan.bubble_fraction},
                          {"fits", one.fits}};
    if (knows_bytes) entry["peak_bytes"] = one.plan.peak_bytes;
    out.push_back(std::move(entry));
  }
  return out;
}

ordered_json advice_json(const Advice& advice) {
  if (!advice.unknown.empty()) return {{"unknown", advice.unknown}};
  ordered_json out = {{"measured_step_seconds", advice.measured_step_seconds},
                      {"simulated_step_seconds", advice.baseline.step_seconds},
                      {"simulated_bubble_fraction", advice.baseline.bubble_fraction},
                      {"explained", advice.explained()}};
  if (advice.knows_bytes) out["simulated_peak_bytes"] = advice.baseline.peak_bytes;
  out["faster"] = suggestions_json(advice.faster, advice.knows_bytes);
  out["leaner"] = suggestions_json(advice.leaner, advice.knows_bytes);
  out["schedules"] = suggestions_json(advice.schedules, advice.knows_bytes);
  return out;
}

ordered_json sessions_json(const RunFacts& facts) {
  auto out = ordered_json::array();
  for (const Session& session : facts.sessions) {
    out.push_back(
        {{"started", format_utc(session.started)},
         {"ended",
          session.ended > 0 ? ordered_json(format_utc(session.ended)) : ordered_json(nullptr)},
         {"first_step", session.first_step},
         {"last_step", session.ended > 0 ? ordered_json(session.last_step) : ordered_json(nullptr)},
         {"dropped_steps", session.dropped_steps},
         {"outcome", outcome_name(session.outcome)},
         {"message", session.message}});
  }
  return out;
}

void add_headline(const Headline& headline, ordered_json* out) {
  ordered_json& root = *out;
  root["state"] = headline.state;
  root["steps"] = headline.steps;
  root["first_loss"] = number(headline.first_loss);
  root["final_loss"] = number(headline.final_loss);
  root["validation"] = validation_json(headline);
  root["samples_per_second"] = headline.samples_per_second;
  root["step_seconds"] = headline.step_seconds;
  root["predicted_step_seconds"] = number(headline.predicted_step_seconds);
  root["bubble_fraction"] = headline.bubble_fraction;
  root["predicted_bubble_fraction"] = number(headline.predicted_bubble_fraction);
  root["peak_bytes"] = headline.peak_bytes;
  root["stage_peak_bytes"] = headline.stage_peak_bytes;
  root["predicted_peak_bytes"] = headline.predicted_peak_bytes;
  root["memory_bytes"] = headline.memory_bytes;
  root["skipped_steps"] = headline.skipped_steps;
  root["training_seconds"] = headline.training_seconds;
}

}  // namespace

ordered_json report_json(const RunReport& report) {
  const RunRecord& run = report.run;
  ordered_json root = {{"run", run.facts.name}, {"run_dir", run.path}, {"model", run.facts.model}};
  add_headline(report.headline, &root);
  root["plan"] = run.plan ? plan_json(*run.plan) : ordered_json(nullptr);
  root["breakdown"] = {{"measured", shares_json(report.measured)},
                       {"predicted", shares_json(report.predicted)}};
  root["ranks"] = ordered_json::array();
  for (const RankReport& rank : report.ranks) root["ranks"].push_back(rank_json(rank));
  root["stages"] = ordered_json::array();
  for (const StageReport& stage : report.stages) root["stages"].push_back(stage_json(stage));
  root["advice"] = advice_json(report.advice);
  root["notes"] = run.notes;
  root["machine"] = {{"host", run.facts.host},
                     {"machine", run.facts.machine},
                     {"cores", run.facts.cores},
                     {"threads_per_rank", run.facts.threads_per_rank}};
  root["versions"] = run.facts.versions;
  root["strategy"] = run.facts.strategy;
  root["sessions"] = sessions_json(run.facts);
  root["checkpoints"] = ordered_json::array();
  for (const SavedFolder& saved : run.checkpoints)
    root["checkpoints"].push_back({{"step", saved.step}, {"path", saved.path}});
  return root;
}

std::string to_json(const RunReport& report) {
  return report_json(report).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace pipewright
