// What does the engine cost over a hand-written LibTorch loop, and how near is a pipeline to its
// formula?
//
//     bench_engine [--dim D] [--layers L] [--seq S] [--batch B] [--repeats R]
//
// Everything is a ratio taken in one run: the two sides of a comparison take turns, and medians are
// compared.

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <thread>

#include "benchmarks/common/cores.h"
#include "benchmarks/common/headline.h"
#include "benchmarks/common/measure.h"
#include "pipewright/exec/step_clock.h"
#include "pipewright/exec/workers.h"
#include "pipewright/memory/meter.h"
#include "pipewright/torch/blas.h"
#include "pipewright/train/trainer.h"

namespace pipewright {
namespace {

using bench::median;
using bench::seconds_of;
using bench::spread;

struct Sizes {
  int dim = 256;
  int layers = 4;
  int seq = 64;
  int batch = 64;
  int repeats = 21;
};

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int dim)
      : norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim})))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim})))),
        qkv(register_module("qkv", torch::nn::Linear(dim, 3 * dim))),
        proj(register_module("proj", torch::nn::Linear(dim, dim))),
        up(register_module("up", torch::nn::Linear(dim, 4 * dim))),
        down(register_module("down", torch::nn::Linear(4 * dim, dim))) {}

  torch::Tensor forward(torch::Tensor x) {  // (B, T, C)
    const auto b = x.size(0), t = x.size(1), c = x.size(2);
    constexpr int kHeads = 4;
    const auto parts = qkv(norm1(x)).view({b, t, 3, kHeads, c / kHeads}).permute({2, 0, 3, 1, 4});
    const auto scores = torch::matmul(parts[0], parts[1].transpose(-1, -2)) /
                        std::sqrt(static_cast<double>(c / kHeads));
    const auto y =
        torch::matmul(torch::softmax(scores, -1), parts[2]).transpose(1, 2).reshape({b, t, c});
    x = x + proj(y);
    return x + down(torch::gelu(up(norm2(x))));
  }
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, proj, up, down;
};
TORCH_MODULE(Block);

Sequence make_model(const Sizes& sizes) {
  torch::manual_seed(1);
  Sequence model;
  bench::add_positions(&model, sizes.seq, sizes.dim);  // so that the stages are equal
  for (int i = 0; i < sizes.layers; ++i) model.add("block" + std::to_string(i), Block(sizes.dim));
  return model;
}

std::unique_ptr<torch::optim::Optimizer> sgd(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), 1e-3);
}

/// The loop anybody would write: micro-batches one after the other, gradients accumulated, one
/// update.
class PlainLoop {
 public:
  PlainLoop(const Sizes& sizes, int micro_batches)
      : model_(make_model(sizes)), micro_batches_(micro_batches) {
    std::vector<torch::Tensor> parameters;
    for (auto& [name, parameter] : model_.named_parameters()) parameters.push_back(parameter);
    optimizer_ = sgd(std::move(parameters));
  }

  void step(const Batch& batch) {
    const auto xs = batch.inputs[0].tensor_split(micro_batches_);
    const auto ys = batch.targets[0].tensor_split(micro_batches_);
    const Loss loss = mean_squared_error();
    optimizer_->zero_grad();
    double sum = 0;
    for (std::size_t m = 0; m < xs.size(); ++m) {
      Tensors x = {xs[m]};
      for (const Layer& layer : model_.layers()) x = layer.forward(x);
      const LossValue value = loss.value(x, {ys[m]});
      (value.sum / static_cast<double>(batch.inputs[0].size(0))).backward();
      sum += value.sum.item<double>();
    }
    optimizer_->step();
    (void)sum;
  }

 private:
  Sequence model_;
  int micro_batches_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

Strategy strategy_of(int ranks, int micro_batches, const std::string& schedule) {
  Strategy strategy;
  strategy.ranks = ranks;
  strategy.micro_batches = micro_batches;
  strategy.schedule = schedule;
  strategy.threads_per_rank = 1;
  return strategy;
}

Batch make_batch(const Sizes& sizes) {
  return {.inputs = {torch::randn({sizes.batch, sizes.seq, sizes.dim})},
          .targets = {torch::randn({sizes.batch, sizes.seq, sizes.dim})}};
}

/// A against b, taking turns, each first every other time.
struct Turns {
  std::vector<double> a, b, ratios;  // ratios: b / a of one turn
};

Turns take_turns(int repeats, const std::function<void()>& a, const std::function<void()>& b) {
  Turns turns;
  for (int i = -2; i < repeats; ++i) {
    const bool a_first = i % 2 == 0;
    const double first = seconds_of(a_first ? a : b);
    const double second = seconds_of(a_first ? b : a);
    if (i < 0) continue;
    turns.a.push_back(a_first ? first : second);
    turns.b.push_back(a_first ? second : first);
    turns.ratios.push_back(turns.b.back() / turns.a.back());
  }
  return turns;
}

void compare_with_loop(const Sizes& sizes, int micro_batches) {
  const Batch batch = make_batch(sizes);
  PlainLoop loop(sizes, micro_batches);
  Trainer trainer(make_model(sizes), mean_squared_error(), sgd,
                  strategy_of(1, micro_batches, "1f1b"));
  const Turns turns = take_turns(
      sizes.repeats, [&] { loop.step(batch); }, [&] { trainer.step(batch); });
  std::printf(
      "K=1 M=%-2d        loop %7.2f ms  engine %7.2f ms  engine / loop %.3f (bound 1.02)  spread "
      "%.2f\n",
      micro_batches, 1e3 * median(turns.a), 1e3 * median(turns.b), median(turns.ratios),
      spread(turns.a));
  bench::add({fmt::format("engine / hand-written loop, K=1 M={}", micro_batches),
              fmt::format("{:.3f}", median(turns.ratios)), "at most 1.02",
              median(turns.ratios) <= 1.02});
}

/// Loops on as many pinned threads at the same time: what the cores give when nobody waits for
/// anybody.
class IndependentLoops {
 public:
  IndependentLoops(const Sizes& sizes, int ranks, int micro_batches) : workers_(ranks, 1) {
    Sizes share = sizes;
    share.layers = sizes.layers / ranks;
    for (int rank = 0; rank < ranks; ++rank)
      loops_.push_back(std::make_unique<PlainLoop>(share, micro_batches));
  }

  void step(const Batch& batch) {
    workers_.run([&](int rank) { loops_[static_cast<std::size_t>(rank)]->step(batch); }, [] {});
  }

 private:
  std::vector<std::unique_ptr<PlainLoop>> loops_;
  Workers workers_;
};

/// Idle share of ranks x the step's seconds, from the caller's first to its last.
double bubble_of(const StepResult& result) {
  const StepTimes step(result.timeline);
  return 1 - step.busy() / (static_cast<double>(step.ranks().size()) * result.seconds);
}

/// The bubble that remains when a measured step is played again with its own durations and nothing
/// between them: every instruction right after its rank's last one and after its input. What the
/// measured bubble has more is the engine's; the rest is the formula's, and that of cores which
/// are not equally fast at all times.
double replayed_bubble(const Timeline& timeline) {
  const std::size_t ranks = timeline.ranks.size();
  std::map<std::tuple<bool, int, int>, double> done;  // forward or not, stage, micro-batch
  std::vector<std::size_t> next(ranks);
  std::vector<double> free_at(ranks);
  double busy = 0;
  for (bool any = true; any;) {
    any = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      while (next[rank] < timeline.ranks[rank].size()) {
        const Span& span = timeline.ranks[rank][next[rank]];
        const bool forward = span.kind == Kind::kForward;
        const bool backward = span.kind == Kind::kBackward || span.kind == Kind::kBackwardInput;
        const int from = forward ? span.stage - 1 : span.stage + 1;
        double start = free_at[rank];
        if ((forward && from >= 0) || (backward && from < static_cast<int>(ranks))) {
          const auto input = done.find({forward, from, span.micro_batch});
          if (input == done.end()) break;
          start = std::max(start, input->second);
        }
        const double length = is_send(span.kind) ? 0 : span.duration();
        busy += length;
        free_at[rank] = start + length;
        if (forward || backward) done[{forward, span.stage, span.micro_batch}] = free_at[rank];
        ++next[rank];
        any = true;
      }
    }
  }
  return 1 -
         busy / (static_cast<double>(ranks) * *std::max_element(free_at.begin(), free_at.end()));
}

void measure_pipeline(const Sizes& sizes, int ranks, int micro_batches,
                      const std::string& schedule) {
  const Batch batch = make_batch(sizes);
  IndependentLoops loops(sizes, ranks, micro_batches);
  Trainer trainer(make_model(sizes), mean_squared_error(), sgd,
                  strategy_of(ranks, micro_batches, schedule));
  std::vector<double> bubbles, replayed;
  const Turns turns = take_turns(
      sizes.repeats, [&] { loops.step(batch); },
      [&] {
        const StepResult result = trainer.step(batch);
        bubbles.push_back(bubble_of(result));
        replayed.push_back(replayed_bubble(result.timeline));
      });
  const double formula = (ranks - 1.0) / (micro_batches + ranks - 1.0);
  std::printf(
      "K=%d M=%d %-10s  loops %7.2f ms  pipeline %7.2f ms  bubble %5.2f %% (formula %.2f, bound "
      "%.2f, its durations alone %.2f)  of the ceiling %5.1f %% (bound 92)  spread %.2f\n",
      ranks, micro_batches, schedule.c_str(), 1e3 * median(turns.a), 1e3 * median(turns.b),
      100 * median(bubbles), 100 * formula, 100 * formula + 3, 100 * median(replayed),
      100 / (1 - formula) / median(turns.ratios), spread(turns.a));
  bench::add({fmt::format("bubble of {}, K={} M={}", schedule, ranks, micro_batches),
              fmt::format("{:.1f} %", 100 * median(bubbles)),
              fmt::format("the formula's {:.1f} % and 3 points", 100 * formula),
              median(bubbles) <= formula + 0.03});
}

/// What it costs to write an instruction down, once for the begin and once for the end.
void measure_recording() {
  Sequence model;
  model.add("identity", torch::nn::Identity());
  StageLayout layout{.first_layer = {0, 1}, .placement = {0}, .devices = {torch::kCPU}};
  const SharedModel shared = share_model(model, outline_of(model), mean_squared_error(), layout);
  const DeviceStream stream(torch::kCPU);
  StageRunner stage(shared, 0, nullptr, {&stream, MemoryMeter::kOutside});
  StepClock clock;
  clock.start(std::chrono::steady_clock::now(), {});
  constexpr int kInstructions = 1000000;
  const double seconds = seconds_of([&] {
    for (int i = 0; i < kInstructions; ++i) {
      clock.begin(stage);
      clock.end(stage, Span(), 0);
    }
  });
  std::printf("recording an instruction: %.0f ns (bound 1000)\n", 1e9 * seconds / kInstructions);
}

int run(int argc, char** argv) {
  CLI::App app("What the engine costs");
  Sizes sizes;
  app.add_option("--dim", sizes.dim, "width");
  app.add_option("--layers", sizes.layers, "blocks");
  app.add_option("--seq", sizes.seq, "tokens");
  app.add_option("--batch", sizes.batch, "rows");
  app.add_option("--repeats", sizes.repeats, "timed repeats");
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);
  measure_recording();
  for (const int micro_batches : {1, 8}) compare_with_loop(sizes, micro_batches);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  for (const int ranks : {2, 4, 8}) {
    if (ranks > cores || sizes.layers % ranks != 0) continue;
    for (const char* schedule : {"gpipe", "1f1b", "eager-1f1b", "zb-h1"})
      measure_pipeline(sizes, ranks, 16, schedule);
  }
  return 0;
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  return pipewright::run(argc, argv);
}
