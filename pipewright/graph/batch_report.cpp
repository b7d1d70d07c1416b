#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pipewright/base/error.h"
#include "pipewright/graph/batch_analysis.h"

namespace pipewright {
namespace {

const char* advice(MixingKind kind) {
  switch (kind) {
    case MixingKind::kBatchNorm: return "allow it, and it normalises by micro-batch";
    case MixingKind::kFixedRows:
      return "export the model so that it reads the number of rows from its input, as x.size(0) or "
             "-1";
    case MixingKind::kBranch: return "use torch.where, which decides for each sample";
    default: return "train it with one micro-batch, or change the model";
  }
}

std::string line_of(const Mixing& mixing) {
  return fmt::format("{} {}; {}", mixing.operation, mixing.words, advice(mixing.kind));
}

}  // namespace

std::string BatchReport::text() const {
  std::string result;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    result += fmt::format("output {} {}\n", i, to_text(outputs[i]));
  for (const std::string& line : reduced) result += line + "\n";
  if (mixings.empty()) result += "no operation mixes samples\n";
  for (const Mixing& mixing : mixings)
    result += fmt::format("mixes samples: {} {}\n", mixing.operation, mixing.words);
  if (!tried.empty()) result += fmt::format("tried: {}\n", fmt::join(tried, ", "));
  return result;
}

void BatchReport::check(bool allow_batch_norm) const {
  std::string lines;
  std::size_t count = 0;
  for (const Mixing& mixing : mixings) {
    if (allow_batch_norm && mixing.kind == MixingKind::kBatchNorm) continue;
    lines += "\n  " + line_of(mixing);
    ++count;
  }
  if (count == 0) return;
  throw InvalidArgument(
      "graph", fmt::format("micro-batches would change the gradients: {} {} samples:{}", count,
                           count == 1 ? "operation mixes" : "operations mix", lines));
}

}  // namespace pipewright
