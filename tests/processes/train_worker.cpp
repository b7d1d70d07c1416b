#include "tests/processes/train_worker.h"

#include <sstream>

namespace pipewright {
namespace {

Features features_of(const Arguments& a) {
  Features f;
  const std::string& names = a.at("features");
  const auto has = [&](const char* name) { return names.find(name) != std::string::npos; };
  f.skips = has("skips");
  f.tied = has("tied");
  f.batch_norm = has("norm");
  f.dropout = has("dropout");
  f.masked = has("masked");
  f.frozen = has("frozen");
  return f;
}

Strategy strategy_from(const Arguments& a) {
  Strategy strategy =
      strategy_of(std::stoi(a.at("ranks")), std::stoi(a.at("micro_batches")), a.at("schedule"));
  strategy.transport = a.at("transport");
  strategy.shared_memory = !a.contains("over_gloo");
  strategy.recompute = static_cast<RecomputeMode>(std::stoi(a.at("recompute")));
  strategy.recompute_every = 2;
  strategy.clip_norm = std::stod(a.at("clip_norm"));
  strategy.merge_steps = std::stoi(a.at("merge_steps"));
  strategy.scale_loss = a.at("scale_loss") == "1";
  strategy.replicas = std::stoi(a.at("replicas"));
  strategy.shard_optimizer = a.at("shard") == "1";
  strategy.vertical_sync = a.contains("vertical_sync");
  if (a.contains("device")) strategy.devices = {a.at("device")};
  return strategy;
}

}  // namespace

TrainResult train_as(const Arguments& a) {
  const Features f = features_of(a);
  Trainer trainer(make_model(f), cross_entropy(), a.at("optimizer") == "adam" ? adam() : sgd(),
                  strategy_from(a));
  Tensors losses;
  for (int step = 0; step < std::stoi(a.at("steps")); ++step) {
    const int rows = std::stoi(a.at("rows")) - (step == 2 ? 4 : 0);  // shapes change, and come back
    const StepResult result = trainer.step(make_batch(rows, step, f));
    losses.push_back(torch::tensor({result.loss, result.gradient_norm}, torch::kFloat64));
  }
  losses.push_back(torch::tensor({trainer.evaluate(make_batch(9, 50, f)).loss}, torch::kFloat64));
  TrainResult result = {{"losses", torch::cat(losses)}};
  for (const auto& [name, tensor] : trainer.state_dict())
    result[name] = tensor.detach().cpu().clone();
  return result;
}

void write_result(const TrainResult& result) {
  torch::serialize::OutputArchive archive;
  std::ostringstream names;
  int number = 0;
  for (const auto& [name, tensor] : result) {
    names << name << '\n';
    archive.write("t" + std::to_string(number++), tensor);
  }
  archive.write("names", c10::IValue(names.str()));
  archive.save_to(result_folder() + "/result." + std::getenv("RANK"));
}

namespace {

const Worker kTrain("train", [](const Arguments& a) { write_result(train_as(a)); });

}  // namespace

TrainResult read_result(const Processes& processes, int rank) {
  torch::serialize::InputArchive archive;
  archive.load_from(processes.folder() + "/result." + std::to_string(rank));
  c10::IValue names;
  archive.read("names", names);
  TrainResult result;
  std::istringstream lines(names.toStringRef());
  int number = 0;
  for (std::string name; std::getline(lines, name);)
    archive.read("t" + std::to_string(number++), result[name]);
  return result;
}

Arguments plain_run(const std::string& schedule) {
  return {{"schedule", schedule}, {"micro_batches", "4"}, {"features", ""},    {"recompute", "0"},
          {"clip_norm", "0"},     {"merge_steps", "1"},   {"scale_loss", "0"}, {"optimizer", "sgd"},
          {"replicas", "1"},      {"shard", "0"},         {"rows", "13"},      {"steps", "5"}};
}

}  // namespace pipewright
