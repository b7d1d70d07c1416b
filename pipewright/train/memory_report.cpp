#include "pipewright/train/memory_report.h"

#include <algorithm>
#include <unordered_set>

namespace pipewright {
namespace {

Tensors state_of(const Layer& layer) {
  if (!layer.module) return {};
  Tensors tensors = layer.module->parameters();
  for (auto& buffer : layer.module->buffers()) tensors.push_back(buffer);
  return tensors;
}

}  // namespace

MemoryReport::MemoryReport(const SharedModel& shared, const Pipeline& pipeline) {
  int num_ranks = 0;
  for (const int rank : shared.layout.placement) num_ranks = std::max(num_ranks, rank + 1);
  ranks_.resize(static_cast<std::size_t>(num_ranks));
  stages_.resize(shared.layout.placement.size());
  for (const auto& rank : pipeline.ranks())
    ranks_[static_cast<std::size_t>(rank->rank())].slot = rank->memory_slot();
  for (int stage = 0; stage < shared.layout.num_stages(); ++stage) {
    if (!pipeline.here(stage)) continue;
    for (const auto& runner : pipeline.rank_of(stage).stages()) {
      if (runner->stage() == stage)
        stages_[static_cast<std::size_t>(stage)].slot = runner->place().memory_slot;
    }
  }
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < shared.model->size(); ++i) {
    const int stage = shared.layout.stage_of(i);
    Entry& of_stage = stages_[static_cast<std::size_t>(stage)];
    Entry& of_rank = ranks_[static_cast<std::size_t>(shared.layout.rank_of(stage))];
    for (const auto& tensor : state_of(shared.model->layers()[i])) {
      if (!tensor.defined() || !tensor.has_storage()) continue;
      const auto& storage = tensor.storage();
      if (!seen.insert(storage.unsafeGetStorageImpl()).second) continue;
      if (MemoryMeter::recharge(tensor, of_stage.slot)) continue;
      of_stage.unmetered += static_cast<std::int64_t>(storage.nbytes());
      of_rank.unmetered += static_cast<std::int64_t>(storage.nbytes());
    }
  }
}

void MemoryReport::begin() {
  for (const auto* entries : {&ranks_, &stages_}) {
    for (const Entry& entry : *entries) {
      if (entry.slot != kElsewhere) MemoryMeter::reset_peak(entry.slot);
    }
  }
}

std::vector<std::int64_t> MemoryReport::peaks(const std::vector<Entry>& entries) {
  std::vector<std::int64_t> result;
  for (const Entry& entry : entries) {
    const bool here = entry.slot != kElsewhere;
    result.push_back(here ? MemoryMeter::stats(entry.slot).peak_bytes + entry.unmetered : 0);
  }
  return result;
}

std::vector<std::int64_t> MemoryReport::rank_peaks() const { return peaks(ranks_); }
std::vector<std::int64_t> MemoryReport::stage_peaks() const { return peaks(stages_); }

}  // namespace pipewright
