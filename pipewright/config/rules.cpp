#include "pipewright/config/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "pipewright/config/schema.h"

namespace pipewright::config {
namespace {

class Rules {
 public:
  Rules(const Config& config, const Known& known, const std::set<std::string>& wrong,
        const Report& report)
      : config_(config), known_(known), wrong_(wrong), report_(report), sections_(schema(known)) {}

  void check() {
    for (const Section& section : sections_) {
      for (const Setting& setting : section.settings) check_setting(section, setting);
    }
    check_model();
    check_length();
    check_warmup();
    check_split();
    check_chunks();
    check_sizes();
    check_devices();
    check_recompute();
    check_processes();
    check_auto_micro_batch();
    check_asynchronous();
  }

 private:
  bool sound(std::initializer_list<const char*> keys) const {
    return std::none_of(keys.begin(), keys.end(),
                        [&](const char* key) { return wrong_.contains(key); });
  }

  void check_setting(const Section& section, const Setting& setting) {
    const std::string key = full_name(section, setting);
    const Value value = setting.value_in(config_);
    if (wrong_.contains(key)) return;
    const bool is_default = value == setting.option.fallback;
    if (setting.required && is_default) {
      report_(key, fmt::format("not set; write {}", wanted(setting.option)));
    }
    const Condition& counts = setting.counts;
    if (is_default || counts.key.empty() || wrong_.contains(counts.key)) return;
    const Setting& other = setting_of(sections_, counts.key);
    const Value held = other.value_in(config_);
    if (holds(counts, other, held)) return;
    report_(key, fmt::format("{} has no effect with {} = {}; {} or leave it out",
                             option_text(setting.option, value), counts.key,
                             option_text(other.option, held), remedy(counts)));
  }

  static bool holds(const Condition& counts, const Setting& other, const Value& held) {
    if (counts.values.empty()) return held != other.option.fallback;
    const auto& text = std::get<std::string>(held);
    return std::find(counts.values.begin(), counts.values.end(), text) != counts.values.end();
  }

  static std::string remedy(const Condition& counts) {
    if (counts.values.empty()) return fmt::format("set {}", counts.key);
    std::vector<std::string> quoted;
    for (const std::string& value : counts.values) quoted.push_back(toml_quoted(value));
    return fmt::format("set {} = {}", counts.key, fmt::join(quoted, " or "));
  }

  void check_model() {
    if (!sound({"model.name", "model.file"})) return;
    const Model& model = config_.model;
    if (model.name.empty() && model.file.empty()) {
      report_("model.name", "not set; write the name of a model, or file = \"model.pt\"");
    } else if (!model.name.empty() && !model.file.empty()) {
      report_("model.file", fmt::format("{} beside name = {}; leave one of them out",
                                        toml_quoted(model.file), toml_quoted(model.name)));
    }
  }

  void check_length() {
    if (!sound({"train.steps", "train.epochs"})) return;
    const Train& train = config_.train;
    if (train.steps == 0 && train.epochs == 0) {
      report_("train.steps", "neither steps nor epochs is set; write one of them, 1 or more");
    } else if (train.steps > 0 && train.epochs > 0) {
      report_("train.epochs", fmt::format("{} beside steps = {}; leave one of them out",
                                          train.epochs, train.steps));
    }
  }

  void check_warmup() {
    if (sound({"train.schedule", "train.schedule_every"}) && config_.train.schedule == "step" &&
        config_.train.schedule_every == 0) {
      report_("train.schedule_every",
              "0 with schedule = \"step\"; write how many updates lie between two steps of the "
              "rate");
    }
    if (!sound({"train.steps", "train.warmup", "train.schedule", "gradient_merge.steps"})) return;
    const std::int64_t merge = config_.gradient_merge.steps;
    const std::int64_t updates = (config_.train.steps + merge - 1) / merge;
    if (config_.train.steps == 0 || config_.train.schedule == "constant") return;
    if (config_.train.warmup < updates) return;
    report_("train.warmup",
            fmt::format("{} of the run's {} updates leave none for schedule = {}; write less, or "
                        "more steps",
                        config_.train.warmup, updates, toml_quoted(config_.train.schedule)));
  }

  void check_split() {
    if (!sound({"data.batch", "pipeline.micro_batches", "data_parallel.replicas"})) return;
    const std::int64_t parts = config_.pipeline.micro_batches * config_.data_parallel.replicas;
    if (config_.data.batch == 0 || parts <= config_.data.batch) return;
    report_("pipeline.micro_batches",
            fmt::format("{} for each of {} replicas are {} slices of data.batch = {} samples; "
                        "write less, or a larger batch",
                        config_.pipeline.micro_batches, config_.data_parallel.replicas, parts,
                        config_.data.batch));
  }

  /// Stages a rank, or 0 where the schedule is not known.
  std::int64_t chunks() const {
    const Schedule* schedule = find(known_.schedules, config_.pipeline.schedule);
    if (config_.pipeline.chunks > 0) return config_.pipeline.chunks;
    return schedule == nullptr ? 0 : schedule->default_chunks;
  }

  void check_chunks() {
    if (!sound({"pipeline.schedule", "pipeline.chunks"})) return;
    const Schedule* schedule = find(known_.schedules, config_.pipeline.schedule);
    const std::int64_t chunks = config_.pipeline.chunks;
    if (schedule == nullptr || chunks == 0) return;
    if (chunks >= schedule->least_chunks && chunks <= schedule->most_chunks) return;
    const bool one = schedule->least_chunks == schedule->most_chunks;
    const std::string allowed =
        one ? fmt::format("{}", schedule->least_chunks)
            : fmt::format("{} to {}", schedule->least_chunks, schedule->most_chunks);
    report_("pipeline.chunks", fmt::format("{} with schedule = {}; write {}, or 0 for its usual",
                                           chunks, toml_quoted(schedule->name), allowed));
  }

  void check_sizes() {
    if (!sound({"pipeline.partition", "pipeline.sizes", "pipeline.ranks", "pipeline.chunks",
                "pipeline.schedule"})) {
      return;
    }
    const Pipeline& pipeline = config_.pipeline;
    if (pipeline.partition != "manual") return;
    const std::int64_t stages = pipeline.ranks * chunks();
    if (pipeline.sizes.empty()) {
      report_("pipeline.sizes",
              "empty with partition = \"manual\"; write the number of layers of each stage");
    } else if (stages > 0 && static_cast<std::int64_t>(pipeline.sizes.size()) != stages) {
      report_("pipeline.sizes",
              fmt::format("{} sizes for ranks = {} with {} stages each; write {} sizes",
                          pipeline.sizes.size(), pipeline.ranks, chunks(), stages));
    }
  }

  std::size_t num_gpus() const {
    const auto& devices = config_.pipeline.devices;
    return static_cast<std::size_t>(
        std::count_if(devices.begin(), devices.end(),
                      [](const std::string& name) { return name.starts_with("cuda"); }));
  }

  void check_devices() {
    if (!sound({"pipeline.devices", "pipeline.ranks", "pipeline.transport"})) return;
    const Pipeline& pipeline = config_.pipeline;
    const std::size_t count = pipeline.devices.size();
    if (count > 1 && static_cast<std::int64_t>(count) != pipeline.ranks) {
      report_("pipeline.devices", fmt::format("{} devices for ranks = {}; write one for all, or {}",
                                              count, pipeline.ranks, pipeline.ranks));
    }
    if (pipeline.transport == "nccl" && (count == 0 || num_gpus() < count)) {
      report_("pipeline.transport",
              "\"nccl\" is between GPUs; write devices = [\"cuda:0\", ...], or transport = "
              "\"gloo\"");
    }
  }

  void check_recompute() {
    if (!sound({"recompute.mode"})) return;
    const Recompute& recompute = config_.recompute;
    if (recompute.mode == "budget" && recompute.budget == 0 && sound({"recompute.budget"})) {
      report_("recompute.budget",
              "0 with mode = \"budget\"; write the bytes that a rank may take, \"8GiB\" say");
    }
    if (recompute.mode == "named" && recompute.checkpoints.empty() &&
        sound({"recompute.checkpoints"})) {
      report_("recompute.checkpoints",
              "empty with mode = \"named\"; write the names of the layers whose inputs are held");
    }
    if (recompute.mode == "none" || !recompute.offload ||
        !sound({"recompute.offload", "pipeline.devices"})) {
      return;
    }
    if (num_gpus() == 0) {
      report_("recompute.offload",
              "true without a GPU; write pipeline.devices = [\"cuda:0\"], or false");
    } else if (num_gpus() < config_.pipeline.devices.size()) {
      report_("recompute.offload",
              "true, but some of pipeline.devices are the CPU, which keeps everything in the "
              "host's memory already; write GPUs alone, or false");
    }
  }

  void check_processes() {
    if (!sound({"data_parallel.replicas", "pipeline.transport"})) return;
    if (config_.data_parallel.replicas == 1 || config_.pipeline.transport != "threads") return;
    report_("data_parallel.replicas",
            fmt::format("{} with pipeline.transport = \"threads\"; replicas are processes, set "
                        "transport = \"gloo\" or \"nccl\"",
                        config_.data_parallel.replicas));
  }

  void check_auto_micro_batch() {
    if (!sound({"auto_micro_batch.num", "pipeline.ranks", "pipeline.micro_batches"})) return;
    const AutoMicroBatch& copies = config_.auto_micro_batch;
    if (copies.num == 1) return;
    const Pipeline& pipeline = config_.pipeline;
    const std::string num = copies.num == 0 ? "\"auto\"" : fmt::format("{}", copies.num);
    if (pipeline.ranks > 1 || pipeline.micro_batches > 1) {
      report_(
          "auto_micro_batch.num",
          fmt::format("{} beside pipeline.ranks = {}, micro_batches = {}; both split the batch, "
                      "leave one of them out",
                      num, pipeline.ranks, pipeline.micro_batches));
    }
    if (copies.num == 0) return;
    if (sound({"auto_micro_batch.lanes"}) && copies.lanes > copies.num) {
      report_("auto_micro_batch.lanes", fmt::format("{} lanes for num = {}; write {} or less",
                                                    copies.lanes, num, copies.num));
    }
    if (sound({"auto_micro_batch.batch", "data.batch"}) && copies.batch == "whole" &&
        config_.data.batch > 0 && copies.num > config_.data.batch) {
      report_("auto_micro_batch.num",
              fmt::format("{} slices of data.batch = {} samples; write less, or a larger batch",
                          num, config_.data.batch));
    }
  }

  /// The ranks of an asynchronous pipeline never meet: what needs all of them has no place there.
  void check_asynchronous() {
    if (!sound({"pipeline.schedule"})) return;
    const Schedule* schedule = find(known_.schedules, config_.pipeline.schedule);
    if (schedule == nullptr || !schedule->asynchronous) return;
    const std::string name = toml_quoted(schedule->name);
    if (sound({"train.clip_norm"}) && config_.train.clip_norm > 0) {
      report_("train.clip_norm",
              fmt::format("{} with schedule = {}, whose stages are updated one by one: there is no "
                          "norm over all of them; write 0, or a synchronous schedule",
                          config_.train.clip_norm, name));
    }
    if (sound({"amp.dtype"}) && config_.amp.dtype == "fp16") {
      report_("amp.dtype",
              fmt::format("\"fp16\" with schedule = {}, whose stages are updated one by one and "
                          "cannot skip an update together; write \"bf16\"",
                          name));
    }
    if (sound({"recompute.mode"}) && config_.recompute.mode == "except_last") {
      report_("recompute.mode",
              fmt::format("\"except_last\" with schedule = {}, which has no last micro-batch; "
                          "write \"all\"",
                          name));
    }
    check_merged(*schedule);
  }

  void check_merged(const Schedule& schedule) {
    if (!sound({"pipeline.ranks", "pipeline.micro_batches", "gradient_merge.steps"})) return;
    const Pipeline& pipeline = config_.pipeline;
    const std::int64_t merged = pipeline.micro_batches * config_.gradient_merge.steps;
    const std::int64_t least = 1 + schedule.update_distance * (pipeline.ranks - 1);
    if (merged >= least) return;
    report_("pipeline.micro_batches",
            fmt::format(
                "{} in each of {} steps an update are fewer than the {} that schedule = {} needs "
                "with ranks = {}; write {} or more, or gradient_merge.steps",
                pipeline.micro_batches, config_.gradient_merge.steps, least,
                toml_quoted(schedule.name), pipeline.ranks,
                (least + config_.gradient_merge.steps - 1) / config_.gradient_merge.steps));
  }

  const Config& config_;
  const Known& known_;
  const std::set<std::string>& wrong_;
  const Report& report_;
  std::vector<Section> sections_;
};

}  // namespace

void check_rules(const Config& config, const Known& known, const std::set<std::string>& wrong,
                 const Report& report) {
  Rules(config, known, wrong, report).check();
}

std::vector<std::string> conflicts(const Config& config, const Known& known) {
  std::vector<std::string> found;
  check_rules(config, known, {}, [&](const std::string& key, const std::string& words) {
    found.push_back(fmt::format("{}: {}", key, words));
  });
  return found;
}

}  // namespace pipewright::config
