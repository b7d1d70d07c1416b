// How fast is a pipeline over ranks and micro-batches: against GPipe's published ratios, against
// its formula, against torch.distributed.pipelining on the same machine?
//
//     bench_pipeline [--ranks 1,2,4,8] [--micro-batches 1,4,32] [--schedules ...] [--ways
//     threads,processes]
//                    [--link BYTES] [--recompute] [--peer SCRIPT --python PYTHON] [--json FILE]
//                    [--svg FILE]
//
// A core a rank. Cells follow each other, the peer's after ours of the same K and M.

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "benchmarks/common/evenness.h"
#include "benchmarks/common/measure.h"
#include "benchmarks/common/processes.h"
#include "benchmarks/pipeline/peer.h"
#include "benchmarks/pipeline/table.h"
#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/base/units.h"
#include "pipewright/memory/heap.h"
#include "pipewright/torch/blas.h"
#include "pipewright/trace/breakdown.h"
#include "pipewright/transport/environment.h"

namespace pipewright::bench {
namespace {

struct Options {
  Sizes sizes;
  int steps = 5;
  int rounds = 1;
  std::string ranks = "1,2,4,8";
  std::string micro_batches = "1,4,32";
  std::string schedules = "1f1b,gpipe,eager-1f1b,interleaved-1f1b,zb-h1,zb-v";
  std::string ways = "threads,processes";
  std::string process_schedules;  // empty: as schedules
  std::string link;
  bool recompute = false;
  bool predict = true;
  bool cores = false;
  Peer peer;
  std::string peer_schedules = "GPipe,1F1B,Interleaved1F1B";
  std::string json, svg;
  std::string out;  // of a rank
};

/// What would otherwise be left out, or divided by, without a word.
void check(const Options& o) {
  for (const std::string& way : parts_of(o.ways)) {
    if (way != "threads" && way != "processes")
      throw InvalidArgument("--ways", fmt::format("'{}'; there are threads and processes", way));
    if (way == "processes" && !o.link.empty())
      throw InvalidArgument("--link", "is of threads; add --ways threads");
  }
  if (o.sizes.work != "transformer" && !o.peer.script.empty())
    throw InvalidArgument("--work",
                          "the peer trains the transformer alone; leave out one of the two");
  for (const int micro_batches : numbers_of(o.micro_batches, "--micro-batches")) {
    if (o.sizes.batch % micro_batches != 0) {
      throw InvalidArgument(
          "--micro-batches",
          fmt::format("{} do not divide the batch of {} evenly", micro_batches, o.sizes.batch));
    }
  }
  for (const auto& [name, value] : {std::pair("--steps", o.steps), {"--rounds", o.rounds}}) {
    if (value < 1) throw InvalidArgument(name, fmt::format("{}; use 1 or more", value));
  }
}

/// With one rank or one micro-batch all schedules are the same.
std::vector<std::string> schedules_of(const std::string& names, int ranks, int micro_batches) {
  auto all = parts_of(names);
  if (ranks == 1 || micro_batches == 1) all.resize(1);
  return all;
}

class Run {
 public:
  explicit Run(const Options& o) : o_(o) {
    if (!o.link.empty()) link_ = static_cast<double>(parse_bytes(o.link, "--link"));
  }

  void measure_all() {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    for (const int micro_batches : numbers_of(o_.micro_batches, "--micro-batches")) {
      if (o_.predict) profile_ = profile_of(o_.sizes, o_.sizes.batch / micro_batches);
      for (const int ranks : numbers_of(o_.ranks, "--ranks")) {
        if (ranks > cores) {
          fmt::print(stderr, "left out: K = {} on {} cores\n", ranks, cores);
          continue;
        }
        for (int round = 0; round < o_.rounds; ++round) {
          for (const std::string& way : parts_of(o_.ways)) measure_ours(ranks, micro_batches, way);
          measure_the_peer(ranks, micro_batches);
        }
      }
    }
  }

  void report() const {
    if (o_.sizes.work != "transformer") fmt::print("--work {}, instead of: ", o_.sizes.work);
    fmt::print("{} blocks of width {}, {} heads, {} tokens, batch {}, LibTorch {}\n\n{}\n{}\n{}",
               o_.sizes.layers, o_.sizes.dim, o_.sizes.heads, o_.sizes.seq, o_.sizes.batch,
               TORCH_VERSION, against_the_paper(lines_), all_cells(lines_),
               prediction_errors(lines_));
    if (o_.cores) fmt::print("\n{}", beside_the_cores(lines_));
    if (o_.recompute) print_parts();
    add_headlines(lines_);
    if (!o_.json.empty()) write_file(o_.json, to_json(lines_).dump(1) + "\n", "--json");
    if (!o_.svg.empty()) write_file(o_.svg, plot(lines_, o_.sizes), "--svg");
  }

 private:
  void measure_ours(int ranks, int micro_batches, const std::string& way) {
    if (way == "processes" && ranks == 1) return;
    const std::string& names =
        way == "processes" && !o_.process_schedules.empty() ? o_.process_schedules : o_.schedules;
    for (const std::string& schedule : schedules_of(names, ranks, micro_batches)) {
      Line line{"ours", {ranks, micro_batches, schedule, way, link_, o_.recompute}, {}, {}};
      const auto work = work_like(o_.sizes.work);
      const double before = evenness_of_cores(ranks, work);
      line.measured = measure(o_.sizes, line.cell, o_.steps);
      line.measured.evenness = std::min(before, evenness_of_cores(ranks, work));
      if (o_.cores && way == "threads" && ranks > 1)
        measure_cores(o_.sizes, line.cell, o_.steps, &line.measured);
      if (o_.predict) line.measured.predicted = predicted_seconds(profile_, o_.sizes, line.cell);
      add(std::move(line));
    }
  }

  void measure_the_peer(int ranks, int micro_batches) {
    if (o_.peer.script.empty()) return;
    for (const auto& schedule : schedules_of(o_.peer_schedules, ranks, micro_batches)) {
      const auto seconds =
          measure_peer(o_.peer, o_.sizes, ranks, micro_batches, schedule, o_.steps);
      if (!seconds) continue;
      Line line{"peer", {ranks, micro_batches, schedule, "processes", 0, false}, {}, {}};
      line.measured.step = *seconds;
      add(std::move(line));
    }
  }

  /// Of several rounds the fastest one counts, ours as the peer's.
  void add(Line line) {
    fmt::print(
        stderr,
        "{} K={} M={} {} {}: {:.1f} ms, {:.0f} page faults, cores {:.3f} even, {:.1f} ms stolen\n",
        line.who, line.cell.ranks, line.cell.micro_batches, line.cell.schedule, line.cell.way,
        1e3 * line.measured.step, line.measured.faults, line.measured.evenness,
        1e3 * line.measured.stolen);
    auto same = std::find_if(lines_.begin(), lines_.end(), [&](const Line& other) {
      return other.who == line.who && other.cell == line.cell;
    });
    if (same == lines_.end()) {
      same = lines_.insert(lines_.end(), line);
    } else if (line.measured.step < same->measured.step) {
      same->measured = line.measured;
    }
    same->rounds.push_back(std::move(line.measured));
  }

  /// Where the time went, beside GPipe's.
  void print_parts() const {
    fmt::print("\n| K | M | schedule |");
    for (const BreakdownPart& part : kBreakdownParts) fmt::print(" {} |", part.name);
    fmt::print("\n|---|---|---|---|---|---|---|---|---|\n");
    for (const Line& line : lines_) {
      if (line.measured.parts.empty()) continue;
      fmt::print("| {} | {} | {} |", line.cell.ranks, line.cell.micro_batches, line.cell.schedule);
      for (const double share : line.measured.parts) fmt::print(" {:.1f} % |", 100 * share);
      fmt::print("\n");
    }
    fmt::print("| GPipe | | | 65.6 % | 22.5 % | 1.7 % | 2.9 % (set-up) | 3.2 % | 4.1 % |\n");
  }

  const Options& o_;
  double link_ = 0;
  Profile profile_;
  std::vector<Line> lines_;
};

Options parse(int argc, char** argv, CLI::App* app) {
  Options o;
  app->add_option("--layers", o.sizes.layers, "Blocks")->capture_default_str();
  app->add_option("--dim", o.sizes.dim, "Width")->capture_default_str();
  app->add_option("--heads", o.sizes.heads, "Heads")->capture_default_str();
  app->add_option("--seq", o.sizes.seq, "Tokens")->capture_default_str();
  app->add_option("--vocab", o.sizes.vocab, "Tokens there are")->capture_default_str();
  app->add_option("--batch", o.sizes.batch, "Sentences a step")->capture_default_str();
  app->add_option(
         "--work", o.sizes.work,
         "What layers do. registers: arithmetic that touches no memory instead of a block; "
         "clock: that for a set time")
      ->check(CLI::IsMember({"transformer", "registers", "clock"}))
      ->capture_default_str();
  app->add_option("--row-ms", o.sizes.row_ms, "With --work clock, of a layer for a row")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app->add_option("--steps", o.steps, "Timed steps of a cell")->capture_default_str();
  app->add_option("--rounds", o.rounds, "Of ours and the peer in turns; the fastest counts")
      ->capture_default_str();
  app->add_option("--ranks", o.ranks, "K; those with more than there are cores are left out")
      ->capture_default_str();
  app->add_option("--micro-batches", o.micro_batches, "M")->capture_default_str();
  app->add_option("--schedules", o.schedules)->capture_default_str();
  app->add_option("--ways", o.ways, "threads, processes")->capture_default_str();
  app->add_option("--process-schedules", o.process_schedules, "Of processes; as --schedules");
  app->add_option("--link", o.link, "What crosses ranks goes over links of so many bytes a second");
  app->add_flag("--recompute", o.recompute, "Of every stage; and where the time goes");
  app->add_flag("--predict,!--no-predict", o.predict, "Beside what was measured")
      ->capture_default_str();
  app->add_flag("--cores", o.cores, "And what the cores do where nothing waits, played again");
  app->add_option("--peer", o.peer.script, "A script that trains the same with another library");
  app->add_option("--python", o.peer.python, "That runs it")->capture_default_str();
  app->add_option("--peer-schedules", o.peer_schedules)->capture_default_str();
  app->add_option("--json", o.json, "A file for the raw figures");
  app->add_option("--svg", o.svg, "A file for a plot");
  app->add_option("--out", o.out, "Of a rank; not for people");
  app->parse(argc, argv);
  return o;
}

int run(const Options& o) {
  torch::set_num_threads(1);
  if (!o.out.empty()) {
    const Cell cell{std::stoi(o.ranks), std::stoi(o.micro_batches), o.schedules, "processes", 0,
                    o.recompute};
    leave_result(o.out, measure_rank(o.sizes, cell, o.steps));
    return 0;
  }
  check(o);
  Run run(o);
  run.measure_all();
  run.report();
  return 0;
}

}  // namespace
}  // namespace pipewright::bench

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  pipewright::keep_freed_memory();  // as the program does
  CLI::App app("How fast a pipeline is over ranks and micro-batches");
  try {
    return pipewright::bench::run(pipewright::bench::parse(argc, argv, &app));
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_pipeline: {}\n", error.what());
    return 2;
  }
}
