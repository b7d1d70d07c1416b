#include "pipewright/data/pair_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/data/rows.h"
#include "pipewright/data/token_source.h"

namespace pipewright {
namespace {

/// `first` tokens `last` filler ..., as far as there is room.
struct Sentence {
  std::int64_t first = -1;  // -1: none
  std::int64_t last = -1;
  std::int64_t filler = 0;
};

void fill(std::span<std::int64_t> row, const Sentence& around, const Tokens& tokens) {
  std::size_t at = 0;
  if (around.first >= 0) row[at++] = around.first;
  const std::size_t ends = around.last >= 0 ? 1 : 0;
  const std::size_t count = std::min(tokens.size(), row.size() - at - ends);
  std::copy_n(tokens.begin(), count, row.begin() + static_cast<std::ptrdiff_t>(at));
  at += count;
  if (ends == 1) row[at++] = around.last;
  std::fill(row.begin() + static_cast<std::ptrdiff_t>(at), row.end(), around.filler);
}

}  // namespace

std::string PairReport::text() const {
  return fmt::format("{} pairs; {} left out, as a sentence is empty; {} shortened to fit\n", pairs,
                     empty, shortened);
}

PairSource::PairSource(std::shared_ptr<const PairSet> pairs,
                       std::shared_ptr<const Tokenizer> source,
                       std::shared_ptr<const Tokenizer> target, const Options& options)
    : pairs_(std::move(pairs)),
      source_(std::move(source)),
      target_(std::move(target)),
      options_(options) {
  if (options.source_length < 2 || options.target_length < 2) {
    throw InvalidArgument("data", fmt::format("lengths of {} and {} tokens; use 2 or more",
                                              options.source_length, options.target_length));
  }
  for (std::int64_t i = 0; i < pairs_->size(); ++i) {
    const SentencePair pair = pairs_->pair(i);
    const auto source_tokens = static_cast<std::int64_t>(source_->encode(pair.source).size());
    const auto target_tokens = static_cast<std::int64_t>(target_->encode(pair.target).size());
    if (source_tokens == 0 || target_tokens == 0) {
      ++report_.empty;
      continue;
    }
    const bool fits =
        source_tokens < options.source_length && target_tokens < options.target_length;
    if (!fits) ++report_.shortened;
    used_.push_back(i);
  }
  report_.pairs = static_cast<std::int64_t>(used_.size());
  if (used_.empty()) throw InvalidArgument("data", "all pairs have an empty sentence");
  if (report_.empty == 0) used_ = {};
}

std::int64_t PairSource::pair_of(std::int64_t sample) const {
  return used_.empty() ? sample : used_[static_cast<std::size_t>(sample)];
}

SampleBatch PairSource::batch(std::span<const std::int64_t> samples, std::int64_t /*epoch*/) const {
  const auto sources = int64_rows(samples.size(), options_.source_length);
  const auto shifted = int64_rows(samples.size(), options_.target_length);
  const auto targets = int64_rows(samples.size(), options_.target_length);
  for (std::size_t row = 0; row < samples.size(); ++row) {
    const SentencePair pair = pairs_->pair(pair_of(samples[row]));
    fill(row_of(sources, row), {.last = source_->end(), .filler = source_->pad()},
         source_->encode(pair.source));
    Tokens target = target_->encode(pair.target);
    // Both rows of a target that is too long lose the same tokens.
    target.resize(std::min(target.size(), static_cast<std::size_t>(options_.target_length - 1)));
    fill(row_of(shifted, row), {.first = target_->begin(), .filler = target_->pad()}, target);
    fill(row_of(targets, row), {.last = target_->end(), .filler = kIgnoredTarget}, target);
  }
  return {{sources, shifted}, {targets}};
}

}  // namespace pipewright
