#include "pipewright/train/memory_report.h"

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
  for (const auto& rank : pipeline.ranks()) ranks_.push_back({rank->memory_slot()});
  for (int stage = 0; stage < shared.layout.num_stages(); ++stage) {
    for (const auto& runner : pipeline.rank_of(stage).stages()) {
      if (runner->stage() == stage) stages_.push_back({runner->place().memory_slot});
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
  for (const Entry& entry : ranks_) MemoryMeter::reset_peak(entry.slot);
  for (const Entry& entry : stages_) MemoryMeter::reset_peak(entry.slot);
}

std::vector<std::int64_t> MemoryReport::peaks(const std::vector<Entry>& entries) {
  std::vector<std::int64_t> result;
  for (const Entry& entry : entries)
    result.push_back(MemoryMeter::stats(entry.slot).peak_bytes + entry.unmetered);
  return result;
}

std::vector<std::int64_t> MemoryReport::rank_peaks() const { return peaks(ranks_); }
std::vector<std::int64_t> MemoryReport::stage_peaks() const { return peaks(stages_); }

}  // namespace pipewright
