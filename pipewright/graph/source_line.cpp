#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include <filesystem>
#include <sstream>

#include "pipewright/graph/graph.h"

namespace jit = torch::jit;

namespace pipewright {
namespace {

struct Place {
  std::string file;
  std::size_t line = 0;
};

/// PyTorch's own modules: users ask for the line of theirs.
bool is_stock(const std::string& file) {
  return file.find("torch/nn/") != std::string::npos ||
         file.find("torch/jit/") != std::string::npos;
}

/// A traced node has the calls that led to it for its source, innermost first, a line each:
/// `folder/model.py(12): forward`. The first that is not PyTorch's own.
std::optional<Place> place_in_calls(const std::string& calls) {
  std::istringstream lines(calls);
  for (std::string line; std::getline(lines, line);) {
    const auto open = line.rfind('(');
    const auto close = line.find("):", open == std::string::npos ? 0 : open);
    if (open == std::string::npos || close == std::string::npos) continue;
    const std::string number = line.substr(open + 1, close - open - 1);
    const bool is_number = !number.empty() && number.find_first_not_of("0123456789") == number.npos;
    const std::string file = line.substr(0, open);
    if (is_number && file.ends_with(".py") && !is_stock(file))
      return Place{file, std::stoul(number)};
  }
  return std::nullopt;
}

/// Of the Python source, where the file kept it; else of the code in the file.
std::optional<Place> place_of(jit::SourceRange range) {
  if (auto origin = range.findSourceRangeThatGenerated()) range = *origin;
  const auto place = range.file_line_col();
  const std::string file = place ? std::get<0>(*place) : "";
  if (range.source() && (file.empty() || is_stock(file))) {
    if (const auto found = place_in_calls(range.source()->text_str().str())) return found;
  }
  if (file.empty()) return std::nullopt;
  return Place{file, std::get<1>(*place)};
}

std::string text_of(const Place& place) {
  return fmt::format("{}:{}", std::filesystem::path(place.file).filename().string(), place.line);
}

}  // namespace

std::string source_line(const jit::Node& node) {
  std::optional<Place> best = place_of(node.sourceRange());
  const auto calls = node.callstack();
  if (calls && best && is_stock(best->file)) {
    for (const auto& entry : (*calls)->vec()) {  // from the outermost call inwards
      const auto place = place_of(std::get<1>(entry));
      if (place && !is_stock(place->file)) best = place;
    }
  }
  const std::string scope = node.scopeName();  // of a traced module: "__module.encoder/..."
  if (best) return scope.empty() ? text_of(*best) : fmt::format("{}, {}", text_of(*best), scope);
  return scope.empty() ? "no source line" : scope;
}

std::string describe(const jit::Node& node) {
  return fmt::format("{} ({})", node.kind().toQualString(), source_line(node));
}

}  // namespace pipewright
