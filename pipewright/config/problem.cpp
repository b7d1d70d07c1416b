#include "pipewright/config/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace pipewright::config {
namespace {

std::string all_of_them(const std::string& file, const std::vector<std::string>& problems) {
  const std::string count =
      problems.size() == 1 ? "a problem" : fmt::format("{} problems", problems.size());
  return fmt::format("{} has {}:\n{}", file, count, fmt::join(problems, "\n"));
}

std::tuple<int, int, int> order_of(const Place& place) {
  return {place.override_number, place.line, place.column};
}

}  // namespace

ConfigError::ConfigError(const std::string& file, std::vector<std::string> problems)
    : InvalidArgument("config", all_of_them(file, problems)), problems_(std::move(problems)) {}

KeyError::KeyError(std::string key, std::string words)
    : InvalidArgument("config", fmt::format("{}: {}", key, words)),
      key_(std::move(key)),
      words_(std::move(words)) {}

Places::Places(std::string file, std::vector<std::string> overrides,
               std::map<std::string, Place> places)
    : file_(std::move(file)), overrides_(std::move(overrides)), places_(std::move(places)) {}

Place Places::of(const std::string& key) const {
  const auto found = places_.find(key);
  if (found != places_.end()) return found->second;
  const auto section = places_.find(key.substr(0, key.find('.')));
  return section == places_.end() ? Place{} : section->second;
}

ConfigError Places::located(const KeyError& error) const {
  Problems problems(file_, overrides_);
  problems.add(of(error.key()), error.key(), error.words());
  return {file_, problems.sorted()};
}

Problems::Problems(std::string file, std::vector<std::string> overrides)
    : file_(std::move(file)), overrides_(std::move(overrides)) {}

std::string Problems::show(const Place& place) const {
  if (place.override_number < 0) return fmt::format("{}:{}:{}", file_, place.line, place.column);
  return fmt::format("--set {}", overrides_[static_cast<std::size_t>(place.override_number)]);
}

void Problems::add(const Place& place, std::string_view key, std::string_view words) {
  problems_.push_back({place, fmt::format("{}: {}: {}", show(place), key, words)});
}

std::vector<std::string> Problems::sorted() const {
  std::vector<Problem> in_order = problems_;
  std::stable_sort(in_order.begin(), in_order.end(), [](const Problem& a, const Problem& b) {
    return order_of(a.place) < order_of(b.place);
  });
  std::vector<std::string> texts;
  for (Problem& problem : in_order) texts.push_back(std::move(problem.text));
  return texts;
}

void Problems::refuse() const {
  if (!problems_.empty()) throw ConfigError(file_, sorted());
}

}  // namespace pipewright::config
