#include "tests/processes/train_on.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <thread>

#include "pipewright/base/file.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

constexpr int kManySteps = 1 << 20;

/// What one rank does at a step of its own, to be wrong.
struct Mischief {
  int rank = -1;
  int step = -1;
  std::string what;

  bool now(int at) const { return step == at && rank == std::stoi(std::getenv("RANK")); }
};

Mischief mischief_of(const Arguments& a) {
  if (!a.contains("what")) return {};
  return {std::stoi(a.at("rank")), std::stoi(a.at("step")), a.at("what")};
}

/// With a fuse in each of three stages.
Sequence model_with(const std::function<torch::Tensor(torch::Tensor)>& fuse, bool tied = true) {
  const Sequence plain = make_model({.skips = true, .tied = tied});
  Sequence model;
  model.add("fuse", fuse);
  for (const Layer& layer : plain.layers()) {
    model.add_layer(layer.name, layer.forward, layer.module, layer.options);
    if (layer.name == "block1" || layer.name == "block2") model.add("after_" + layer.name, fuse);
  }
  return model;
}

Strategy strategy_for(int ranks) {
  Strategy strategy = strategy_of(ranks, 4);
  if (ranks == 3) strategy.sizes = {6, 5, 5};
  return strategy;
}

Strategy strategy_from(const Arguments& a) {
  const int replicas = a.contains("replicas") ? std::stoi(a.at("replicas")) : 1;
  Strategy strategy = strategy_for(std::stoi(std::getenv("WORLD_SIZE")) / replicas);
  strategy.replicas = replicas;
  strategy.transport = "gloo";
  if (a.contains("schedule")) strategy.schedule = a.at("schedule");
  strategy.life_deadline_seconds = std::stod(a.at("life"));
  if (a.contains("deadline")) strategy.deadline_seconds = std::stod(a.at("deadline"));
  if (a.contains("address")) strategy.address = a.at("address");
  return strategy;
}

std::string loss_file(const std::string& folder, int rank) {
  return fmt::format("{}/loss.{}", folder, rank);
}

/// Written beside and renamed: it may be read, or the writer killed, at any moment.
void write_loss(double loss) {
  const std::string path = loss_file(result_folder(), std::stoi(std::getenv("RANK")));
  write_file(path + ".new", fmt::format("{}", loss), "test");
  std::filesystem::rename(path + ".new", path);
}

const Worker kWorker(kTrainOn, [](const Arguments& a) {
  const Mischief mischief = mischief_of(a);
  int step = 0;
  const auto fuse = [&](torch::Tensor x) {
    if (mischief.now(step) && mischief.what == "layer") throw std::runtime_error("the fuse blew");
    if (mischief.now(step) && mischief.what == "slow")
      std::this_thread::sleep_for(std::chrono::hours(1));
    return x;
  };
  const int steps = a.contains("steps") ? std::stoi(a.at("steps")) : kManySteps;
  const bool tied = !a.contains("schedule");  // asynchronous schedules refuse it
  Trainer trainer(model_with(fuse, tied), cross_entropy(), sgd(), strategy_from(a));
  for (; step < steps; ++step) {
    if (mischief.now(step)) {
      if (mischief.what == "exit") std::exit(3);
      if (mischief.what == "_exit") ::_exit(3);
      if (mischief.what == "return") return;
      if (mischief.what == "throw") throw std::runtime_error("no more data");
    }
    write_loss(trainer.step(make_batch(13, step % 50, {})).loss);
  }
});

}  // namespace

double last_loss_with_threads(int ranks, int steps) {
  Trainer trainer(model_with([](torch::Tensor x) { return x; }), cross_entropy(), sgd(),
                  strategy_for(ranks));
  double loss = 0;
  for (int step = 0; step < steps; ++step) loss = trainer.step(make_batch(13, step % 50, {})).loss;
  return loss;
}

double last_loss(const Processes& processes, int rank) {
  return std::stod(read_file(loss_file(processes.folder(), rank), "test"));
}

void wait_for_training(Processes& processes, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = loss_file(processes.folder(), rank);
    eventually([&] { return std::filesystem::exists(path) || !processes.runs(rank); },
               fmt::format("rank {} has done a step", rank));
    if (!std::filesystem::exists(path)) throw std::runtime_error(processes.words(rank));
  }
}

std::string error_of(const Processes& processes, int rank) {
  std::istringstream lines(processes.words(rank));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[transport]") || line.starts_with("[exec]")) return line;
  }
  return "no error; but: " + processes.words(rank);
}

}  // namespace pipewright
