#include "pipewright/checkpoint/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace pipewright {
namespace {

constexpr std::array kAllBeside = {Beside::kWriting, Beside::kReplaced, Beside::kRemoving};

std::string_view beside_name(Beside beside) {
  switch (beside) {
    case Beside::kWriting: return "writing";
    case Beside::kReplaced: return "replaced";
    case Beside::kRemoving: break;
  }
  return "removing";
}

}  // namespace

std::string_view part_name(Part part) { return part == Part::kWeights ? "model" : "optimizer"; }

std::optional<Part> parse_part(std::string_view name) {
  for (const Part part : kAllParts) {
    if (part_name(part) == name) return part;
  }
  return std::nullopt;
}

std::string group_file(Part part, int group, int num_groups) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", part_name(part), group + 1, num_groups);
}

std::string index_file(Part part) {
  return fmt::format("{}.safetensors.index.json", part_name(part));
}

std::string step_folder(std::int64_t step) { return fmt::format("step-{:08}", step); }

std::optional<std::int64_t> parse_step_folder(std::string_view name) {
  constexpr std::string_view kStart = "step-";
  if (!name.starts_with(kStart)) return std::nullopt;
  const std::string_view digits = name.substr(kStart.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  // One name a step: no step-7 beside step-00000007.
  if (step < 0 || step_folder(step) != name) return std::nullopt;
  return step;
}

std::string beside_folder(std::int64_t step, Beside beside) {
  return fmt::format(".{}.{}", step_folder(step), beside_name(beside));
}

std::optional<BesideFolder> parse_beside_folder(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (!name.starts_with('.') || dot == 0) return std::nullopt;
  const auto step = parse_step_folder(name.substr(1, dot - 1));
  if (!step) return std::nullopt;
  for (const Beside beside : kAllBeside) {
    if (beside_name(beside) == name.substr(dot + 1)) return BesideFolder{*step, beside};
  }
  return std::nullopt;
}

bool is_plain_file_name(std::string_view name) {
  constexpr std::size_t kMostBytes = 255;
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMostBytes && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), plain);
}

std::string in_folder(const std::string& folder, std::string_view name) {
  return fmt::format("{}{}{}", folder, folder.ends_with('/') ? "" : "/", name);
}

}  // namespace pipewright
