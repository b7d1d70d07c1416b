#include "pipewright/train/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

std::string line_of(const std::string& layer, const TensorOutline& tensor) {
  return fmt::format("{} '{}.{}' of {} [{}]{}", tensor.is_parameter ? "parameter" : "buffer", layer,
                     tensor.name, torch::toString(tensor.type), fmt::join(tensor.sizes, ", "),
                     tensor.is_parameter && !tensor.requires_grad ? ", frozen" : "");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::vector<std::string> description_of(const Strategy& s, const Sequence& model,
                                        const Outline& outline, const std::vector<int>& sizes) {
  std::vector<std::string> lines = {
      fmt::format("LibTorch {}", TORCH_VERSION),
      fmt::format("ranks = {}", s.ranks),
      fmt::format("replicas = {}", s.replicas),
      fmt::format("micro_batches = {}", s.micro_batches),
      fmt::format("schedule = {}", s.schedule),
      fmt::format("chunks = {}", s.chunks),
      fmt::format("vertical_sync = {}", s.vertical_sync),
      fmt::format("recompute = {} of every {}, budget {}", static_cast<int>(s.recompute),
                  s.recompute_every, s.memory_budget),
      fmt::format("shard_optimizer = {}", s.shard_optimizer),
      fmt::format("shared_memory = {}", s.shared_memory),
      fmt::format("clip_norm = {}", s.clip_norm),
      fmt::format("merge_steps = {}, averaged: {}", s.merge_steps, s.merge_average),
      fmt::format("seed = {}", s.seed),
      fmt::format("precision = {}", static_cast<int>(s.precision)),
      fmt::format("scale_loss = {}", s.scale_loss.value_or(s.precision == Precision::kFp16)),
      fmt::format("layers by stage {}", fmt::join(sizes, ", "))};
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Layer& layer = model.layers()[i];
    lines.push_back(fmt::format(
        "layer '{}'{}", layer.name,
        layer.options.stash.empty() && layer.options.pop.empty()
            ? ""
            : fmt::format(", stashes [{}], pops [{}]", fmt::join(layer.options.stash, ", "),
                          fmt::join(layer.options.pop, ", "))));
    for (const TensorOutline& tensor : outline[i]) lines.push_back(line_of(layer.name, tensor));
  }
  return lines;
}

std::string first_difference(const std::vector<std::string>& own,
                             const std::vector<std::string>& first, int rank) {
  const std::size_t most = std::max(own.size(), first.size());
  const auto at = [](const std::vector<std::string>& lines, std::size_t i) {
    return i < lines.size() ? lines[i] : "nothing more";
  };
  for (std::size_t i = 0; i < most; ++i) {
    if (at(own, i) == at(first, i)) continue;
    return fmt::format(
        "process {} has {}, process 0 has {}; all processes must make the same trainer", rank,
        at(own, i), at(first, i));
  }
  return {};
}

void check_agreement(const Grid& grid, const Strategy& strategy, const Sequence& model,
                     const Outline& outline, const std::vector<int>& sizes) {
  if (grid.one_process()) return;
  const auto own = description_of(strategy, model, outline, sizes);
  const std::string key = "trainer " + next_group();
  const int rank = grid.world->place().rank;
  if (rank == 0) {
    grid.world->post(key, fmt::format("{}\n", fmt::join(own, "\n")));
    return;
  }
  const auto deadline = std::chrono::duration<double>(strategy.deadline_seconds);
  const auto first = lines_of(grid.world->wait_for_text(key, 0, deadline));
  const std::string difference = first_difference(own, first, rank);
  if (difference.empty()) return;
  grid.world->fail(difference);
  throw InvalidArgument("trainer", difference);
}

}  // namespace pipewright
