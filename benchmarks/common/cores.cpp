#include "benchmarks/common/cores.h"

#include <fmt/format.h>

#include <barrier>
#include <thread>

#include "pipewright/base/cores.h"
#include "pipewright/plan/stage_work.h"

namespace pipewright::bench {
namespace {

struct PositionsImpl : torch::nn::Module {
  PositionsImpl(int seq, int dim)
      : table(register_parameter("table", 0.02 * torch::randn({seq, dim}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x + table; }
  torch::Tensor table;
};
TORCH_MODULE(Positions);

/// By stage: the how many-th of its rank it is.
std::vector<int> places_within_ranks(const Program& program) {
  std::vector<int> seen(program.ranks.size());
  std::vector<int> places;
  for (const int rank : program.placement) places.push_back(seen[static_cast<std::size_t>(rank)]++);
  return places;
}

}  // namespace

Sequence& add_positions(Sequence* model, int seq, int dim) {
  return model->add("positions", Positions(seq, dim));
}

Share share_of(const Sequence& model, const std::vector<int>& sizes, const Program& program,
               int rank, int seq, int dim) {
  Share share;
  share.strategy.schedule = program.is_asynchronous() ? "1f1b" : program.schedule;
  share.strategy.threads_per_rank = 1;
  const std::vector<LayerRange> ranges = layer_ranges(sizes);
  for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
    if (program.placement[stage] != rank) continue;
    share.strategy.sizes.push_back(sizes[stage]);
    if (share.model.size() == 0 && ranges[stage].first > 0) {
      add_positions(&share.model, seq, dim);
      ++share.strategy.sizes.back();
    }
    for (std::size_t i = ranges[stage].first; i < ranges[stage].last; ++i) {
      const Layer& layer = model.layers()[i];
      share.model.add_layer(layer.name, layer.forward, layer.module, layer.options);
    }
  }
  share.strategy.chunks = static_cast<int>(share.strategy.sizes.size());
  return share;
}

CoreTimes::CoreTimes(std::vector<Share> shares, const OptimizerFactory& optimizer, int steps)
    : seconds_(shares.size()) {
  std::barrier together(static_cast<std::ptrdiff_t>(shares.size()));
  std::vector<std::exception_ptr> failures(shares.size());
  const std::vector<int> cores = usable_cores();
  const auto work = [&](std::size_t core) {
    pin_thread(share_of_cores(cores, static_cast<int>(core), static_cast<int>(shares.size())));
    Share& share = shares[core];
    Trainer trainer(share.model, share.loss, optimizer, share.strategy);
    trainer.step(share.batch);
    for (int i = 0; i < steps; ++i) {
      together.arrive_and_wait();
      const StepResult result = trainer.step(share.batch);
      for (const Span& span : result.timeline.ranks[0])
        seconds_[core][{span.kind, span.stage}].push_back(span.duration());
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t core = 0; core < shares.size(); ++core) {
    threads.emplace_back([&, core] {
      try {
        work(core);
      } catch (...) {
        failures[core] = std::current_exception();
        together.arrive_and_drop();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

Simulation CoreTimes::play(const Program& program) const {
  const std::vector<int> places = places_within_ranks(program);
  Timeline timeline;
  timeline.ranks.resize(program.ranks.size());
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    std::map<Key, std::size_t> next;
    for (const Instruction i : program.ranks[rank]) {
      const Key key{i.kind(), places[static_cast<std::size_t>(i.stage())]};
      const auto found = seconds_[rank].find(key);
      if (found == seconds_[rank].end()) continue;
      Span span;
      span.end = found->second[next[key]++ % found->second.size()];
      span.stage = i.stage();
      span.micro_batch = i.micro_batch();
      span.kind = i.kind();
      timeline.ranks[rank].push_back(span);
    }
  }
  StepCosts costs;
  costs.stages.resize(program.placement.size());
  return simulate(program, costs, {.record_timeline = false, .as_in = &timeline});
}

double CoreTimes::slowest() const {
  double most = 0, all = 0;
  for (const auto& kinds : seconds_) {
    double core = 0;
    for (const auto& [key, list] : kinds) {
      for (const double seconds : list) core += seconds;
    }
    most = std::max(most, core);
    all += core;
  }
  return most * static_cast<double>(seconds_.size()) / all;
}

}  // namespace pipewright::bench
