// What do processes cost? Messages and bytes of a step against the least possible, the step's time
// against that of threads, and how much of the communication the step waits for.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "benchmarks/common/headline.h"
#include "benchmarks/common/measure.h"
#include "benchmarks/common/processes.h"
#include "benchmarks/common/waiting_model.h"
#include "benchmarks/distributed/wire.h"
#include "pipewright/models/gpt.h"
#include "pipewright/plan/plan.h"
#include "pipewright/run/measured_costs.h"
#include "pipewright/sim/simulate.h"
#include "pipewright/torch/blas.h"
#include "pipewright/train/training.h"
#include "pipewright/transport/environment.h"
#include "pipewright/transport/process_transport.h"

using namespace pipewright;
using bench::median;

namespace {

struct Options {
  int ranks = 2;
  int micro_batches = 8;
  int layers = 4;
  int dim = 128;
  int seq = 64;
  int batch = 16;
  int rounds = 5;
  int steps = 10;  // a round
  std::string schedule = "1f1b";
  int replicas = 1;
  double wait = 0;              // milliseconds a layer, instead of the GPT; 0: the GPT
  std::int64_t parameters = 1;  // of such a layer
  double link = 0;              // megabits a second of a wire between them; 0: none
  bool sockets = false;         // between processes, even where they could share memory
  std::string out;              // of a worker
};

constexpr int kWarmUpSteps = 3;
constexpr int kVocabulary = 65;

Batch make_batch(const Options& o) {
  torch::manual_seed(1);
  if (o.wait > 0) {
    const auto x = torch::randn({o.batch, o.seq, o.dim});
    return {.inputs = {x}, .targets = {torch::zeros_like(x)}};
  }
  const auto tokens = torch::randint(kVocabulary, {o.batch, o.seq + 1});
  return {.inputs = {tokens.slice(1, 0, o.seq).contiguous()},
          .targets = {tokens.slice(1, 1, o.seq + 1).contiguous()}};
}

/// Untied: what crosses a boundary is then an activation and its gradient, and nothing else.
Sequence make_model(const Options& o) {
  if (o.wait > 0) return bench::make_waiting_model(o.layers, 1e-3 * o.wait, o.parameters);
  return make_gpt({.layers = o.layers,
                   .dim = o.dim,
                   .heads = 4,
                   .seq = o.seq,
                   .vocab = kVocabulary,
                   .tied = false,
                   .later = true});
}

Training make_training(const Options& o, const std::string& transport) {
  Strategy strategy;
  strategy.ranks = o.ranks;
  strategy.replicas = o.replicas;
  strategy.micro_batches = o.micro_batches;
  strategy.schedule = o.schedule;
  strategy.transport = transport;
  strategy.shared_memory = !o.sockets;
  const auto sgd = [](const Parameters& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, 0.01);
  };
  return {make_model(o), o.wait > 0 ? mean_squared_error() : cross_entropy(), sgd, strategy};
}

/// What one rank measured.
struct Measured {
  std::vector<double> step_seconds;
  double idle = 0;  // share of the rank's step in which it does nothing
  double messages = 0;
  double bytes = 0;
  double payload = 0;
  double predicted = 0;  // seconds that a step over the slow link takes longer
};

void to_json(nlohmann::json& json, const Measured& m) {
  json = {{"step_seconds", m.step_seconds}, {"idle", m.idle},
          {"messages", m.messages},         {"bytes", m.bytes},
          {"payload", m.payload},           {"predicted", m.predicted}};
}

void from_json(const nlohmann::json& json, Measured& m) {
  json.at("step_seconds").get_to(m.step_seconds);
  json.at("idle").get_to(m.idle);
  json.at("messages").get_to(m.messages);
  json.at("bytes").get_to(m.bytes);
  json.at("payload").get_to(m.payload);
  json.at("predicted").get_to(m.predicted);
}

Traffic traffic_of(Training* training) {
  const auto* transport = dynamic_cast<ProcessTransport*>(&training->pipeline().transport());
  return transport == nullptr ? Traffic() : transport->sent();
}

/// What the simulator says that the slow link adds to this step.
double predicted_delay(const Options& o, const Timeline& measured) {
  Plan plan;
  plan.schedule = o.schedule;
  plan.ranks = o.ranks;
  plan.micro_batches = o.micro_batches;
  const Program program = plan_program(plan);
  StepCosts costs{measured_costs(measured, static_cast<std::size_t>(o.ranks)), {}};
  const double free = simulate(program, costs).step_time();
  const double message =
      static_cast<double>(sizeof(float)) * o.batch * o.seq * o.dim / o.micro_batches;
  for (StageCost& stage : costs.stages) stage.link_time = 8 * message / (1e6 * o.link);
  return simulate(program, costs).step_time() - free;
}

Measured measure(const Options& o, const std::string& transport) {
  Training training = make_training(o, transport);
  const Batch batch = make_batch(o);
  for (int i = 0; i < kWarmUpSteps; ++i) training.run(batch, StepKind::kUpdate);
  Measured measured;
  const Traffic before = traffic_of(&training);
  for (int i = 0; i < o.steps; ++i) {
    const StepResult result = training.run(batch, StepKind::kUpdate);
    measured.step_seconds.push_back(result.seconds);
    measured.idle += StepTimes(result.timeline).bubble_fraction() / o.steps;
    if (o.link > 0) measured.predicted += predicted_delay(o, result.timeline) / o.steps;
  }
  const Traffic after = traffic_of(&training);
  measured.messages = static_cast<double>(after.messages - before.messages) / o.steps;
  measured.bytes = static_cast<double>(after.bytes - before.bytes) / o.steps;
  measured.payload = static_cast<double>(after.payload_bytes - before.payload_bytes) / o.steps;
  return measured;
}

std::vector<Measured> measure_processes(const Options& o, const bench::RankPlace& where = {}) {
  std::vector<std::string> arguments;
  const auto add = [&](const char* name, const auto& value) {
    arguments.insert(arguments.end(), {name, fmt::format("{}", value)});
  };
  add("--ranks", o.ranks);
  add("--micro-batches", o.micro_batches);
  add("--layers", o.layers);
  add("--dim", o.dim);
  add("--seq", o.seq);
  add("--batch", o.batch);
  add("--steps", o.steps);
  add("--schedule", o.schedule);
  add("--replicas", o.replicas);
  add("--link", o.link);
  add("--wait", o.wait);
  add("--parameters", o.parameters);
  if (o.sockets) arguments.emplace_back("--sockets");
  std::vector<Measured> all;
  for (const nlohmann::json& one : bench::run_ranks(o.ranks * o.replicas, arguments, where))
    all.push_back(one.get<Measured>());
  return all;
}

/// A boundary's activation of all micro-batches one way, its gradient the other way.
double least_bytes(const Options& o) {
  return 2.0 * (o.ranks - 1) * o.batch * o.seq * o.dim * static_cast<double>(sizeof(float));
}

double least_messages(const Options& o) { return 2.0 * (o.ranks - 1) * o.micro_batches; }

void print_traffic(const Options& o, const std::vector<Measured>& ranks) {
  Measured sum;
  for (const Measured& rank : ranks) {
    sum.messages += rank.messages;
    sum.bytes += rank.bytes;
    sum.payload += rank.payload;
  }
  fmt::print(
      "{} ranks a step: {:.0f} messages (least {:.0f}), {:.0f} bytes (least {:.0f}, {:+.2f} %)\n",
      o.ranks, sum.messages, least_messages(o), sum.bytes, least_bytes(o),
      100 * (sum.bytes / least_bytes(o) - 1));
  bench::add({fmt::format("messages and bytes of {} processes over the least possible", o.ranks),
              fmt::format("{:.2f} and {:.4f}", sum.messages / least_messages(o),
                          sum.bytes / least_bytes(o)),
              "bytes at most 1.01",
              sum.messages >= least_messages(o) && sum.bytes >= least_bytes(o) &&
                  sum.bytes <= 1.01 * least_bytes(o)});
}

/// Threads and processes in turns. What goes through memory that processes share is no traffic: it
/// is counted where they have sockets, in a round of its own.
void compare(const Options& o) {
  std::vector<double> threads, processes, ratios, idle_threads, idle_processes;
  for (int round = 0; round < o.rounds; ++round) {
    const Measured alone = measure(o, "threads");
    const Measured first = measure_processes(o)[0];
    threads.push_back(median(alone.step_seconds));
    processes.push_back(median(first.step_seconds));
    ratios.push_back(processes.back() / threads.back());
    idle_threads.push_back(alone.idle);
    idle_processes.push_back(first.idle);
  }
  Options over_sockets = o;
  over_sockets.sockets = true;
  print_traffic(o, measure_processes(over_sockets));
  fmt::print(
      "{} ranks, step: threads {:.2f} ms (idle {:.1f} %), processes {:.2f} ms (idle {:.1f} %), "
      "ratio {:.3f} ({:.3f} to {:.3f})\n",
      o.ranks, 1e3 * median(threads), 100 * median(idle_threads), 1e3 * median(processes),
      100 * median(idle_processes), median(ratios), *std::min_element(ratios.begin(), ratios.end()),
      *std::max_element(ratios.begin(), ratios.end()));
  bench::add({fmt::format("{} processes over {} threads, step time", o.ranks, o.ranks),
              fmt::format("{:.3f}", median(ratios))});
}

/// How much of the time that messages take on a wire the step does not wait for. Every second
/// process is at the other end of it.
void overlap(Options o) {
  o.sockets = true;
  const bench::Wire wire;
  const bench::RankPlace where{.address = wire.address(),
                               .odd_ranks = {"nsenter", "--net=" + wire.other_network()}};
  std::vector<double> free, slow, link, hidden, predicted;
  for (int round = 0; round < o.rounds; ++round) {
    const Measured quick = measure_processes(o, where)[0];
    wire.limit(o.link);
    const std::int64_t before = wire.bytes();
    const Measured held = measure_processes(o, where)[0];
    const auto bytes = static_cast<double>(wire.bytes() - before) / (o.steps + kWarmUpSteps);
    wire.limit(0);
    free.push_back(median(quick.step_seconds));
    slow.push_back(median(held.step_seconds));
    link.push_back(8 * bytes / (1e6 * o.link));
    hidden.push_back(1 - (slow.back() - free.back()) / link.back());
    predicted.push_back(1 - quick.predicted / link.back());
  }
  fmt::print(
      "{} ranks x {} replicas, {}, {} micro-batches, step: {:.1f} ms; over a wire of {} Mbit/s, "
      "which its messages take {:.1f} ms of, {:.1f} ms: {:.0f} % of that is hidden ({:.0f} to "
      "{:.0f})",
      o.ranks, o.replicas, o.schedule, o.micro_batches, 1e3 * median(free), o.link,
      1e3 * median(link), 1e3 * median(slow), 100 * median(hidden),
      100 * *std::min_element(hidden.begin(), hidden.end()),
      100 * *std::max_element(hidden.begin(), hidden.end()));
  if (o.replicas == 1) fmt::print(", the simulator says {:.0f} %", 100 * median(predicted));
  fmt::print("\n");
}

Options parse(int argc, char** argv, CLI::App* app) {
  Options o;
  const CLI::Range positive(1, 1 << 20);
  app->add_option("--ranks", o.ranks)->capture_default_str()->check(positive);
  app->add_option("--micro-batches", o.micro_batches)->capture_default_str()->check(positive);
  app->add_option("--layers", o.layers, "blocks of the GPT")
      ->capture_default_str()
      ->check(positive);
  app->add_option("--dim", o.dim)->capture_default_str()->check(positive);
  app->add_option("--seq", o.seq)->capture_default_str()->check(positive);
  app->add_option("--batch", o.batch)->capture_default_str()->check(positive);
  app->add_option("--rounds", o.rounds, "threads, then processes")
      ->capture_default_str()
      ->check(positive);
  app->add_option("--steps", o.steps, "a round")->capture_default_str()->check(positive);
  app->add_option("--schedule", o.schedule)->capture_default_str();
  app->add_option("--replicas", o.replicas, "of the pipeline; with --link")
      ->capture_default_str()
      ->check(positive);
  app->add_option("--wait", o.wait,
                  "layers that wait so many milliseconds forward, twice that backward, as for an "
                  "accelerator, instead of the GPT's")
      ->check(CLI::Range(0.0, 1e6));
  app->add_option("--parameters", o.parameters, "of such a layer")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 30));
  app->add_option("--link", o.link,
                  "put a wire of so many Mbit/s between the processes, and tell how much of the "
                  "communication is hidden; in a network namespace")
      ->check(CLI::Range(0.0, 1e6));
  app->add_flag("--sockets", o.sockets, "between processes, even where they could share memory");
  app->add_option("--out", o.out, "of a worker; not for people");
  app->parse(argc, argv);
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  CLI::App app("Processes against threads, and against the least that must be sent.");
  try {
    const Options o = parse(argc, argv, &app);
    const ProcessPlace place = read_environment();
    if (!place.launched()) {
      o.link > 0 ? overlap(o) : compare(o);
      return 0;
    }
    bench::leave_result(o.out, measure(o, "gloo"));
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_distributed: {}\n", error.what());
    return 1;
  }
}
