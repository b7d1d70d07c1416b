#include "pipewright/input/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/json.h"
#include "pipewright/input/draw.h"
#include "pipewright/input/permutation.h"

namespace pipewright {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

struct Rows {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The shard's part of `rows`.
Rows share_of(const Rows& rows, const Shard& shard) {
  const std::int64_t least = (rows.end - rows.begin) / shard.replicas;
  const std::int64_t larger = (rows.end - rows.begin) % shard.replicas;
  const std::int64_t begin =
      rows.begin + shard.replica * least + std::min<std::int64_t>(shard.replica, larger);
  return {begin, begin + least + (shard.replica < larger ? 1 : 0)};
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InvalidArgument("data", fmt::format("position.seed is '{}'; it must be a whole number "
                                              "from 0 to 2^64 - 1",
                                              text));
  }
  return seed;
}

void check_sizes(const OrderOptions& options, const Shard& shard) {
  if (options.samples < 1) {
    throw InvalidArgument("data",
                          fmt::format("{} samples; there must be at least one", options.samples));
  }
  if (options.batch < 1) {
    throw InvalidArgument("data", fmt::format("batch = {}; use 1 or more", options.batch));
  }
  if (shard.replicas < 1 || shard.replica < 0 || shard.replica >= shard.replicas) {
    throw InvalidArgument(
        "data", fmt::format("replica {} of {}; they count from 0", shard.replica, shard.replicas));
  }
}

std::string different(std::string_view name, std::int64_t saved, std::int64_t now) {
  if (saved == now) return "";
  return fmt::format(" {} was {} and is {}", name, saved, now);
}

}  // namespace

nlohmann::json to_json(const DataPosition& position) {
  return {{"epoch", position.epoch},
          {"batch", position.batch},
          {"samples", position.order.samples},
          {"batch_rows", position.order.batch},
          {"shuffle", position.order.shuffle ? "yes" : "no"},
          // As text: many readers of JSON keep 53 bits of a number.
          {"seed", fmt::format("{}", position.order.seed)}};
}

DataPosition data_position_from_json(const nlohmann::json& value) {
  const JsonObject object(value, "data", "position");
  object.refuse_unknown({"epoch", "batch", "samples", "batch_rows", "shuffle", "seed"});
  DataPosition position;
  position.epoch = object.integer("epoch", 0, kMost);
  position.batch = object.integer("batch", 0, kMost);
  position.order.samples = object.integer("samples", 1, kMost);
  position.order.batch = object.integer("batch_rows", 1, kMost);
  const std::string shuffle = object.string("shuffle");
  if (shuffle != "yes" && shuffle != "no") {
    throw InvalidArgument("data",
                          fmt::format("position.shuffle is '{}'; it must be yes or no", shuffle));
  }
  position.order.shuffle = shuffle == "yes";
  position.order.seed = parse_seed(object.string("seed"));
  return position;
}

SampleOrder::SampleOrder(const OrderOptions& options, const Shard& shard)
    : options_(options), shard_(shard) {
  check_sizes(options, shard);
  const std::int64_t last = options.samples - (num_batches() - 1) * options.batch;
  const std::int64_t fewest = std::min(last, options.batch);
  if (fewest < shard.replicas) {
    throw InvalidArgument(
        "data", fmt::format("the last batch of an epoch has {} of {} samples, too few for {} "
                            "replicas; choose another batch than {}",
                            fewest, options.samples, shard.replicas, options.batch));
  }
}

std::int64_t SampleOrder::num_batches() const {
  return (options_.samples - 1) / options_.batch + 1;
}

std::vector<std::int64_t> SampleOrder::rows(std::int64_t epoch, std::int64_t batch) const {
  internal_check(epoch >= 0 && batch >= 0 && batch < num_batches(), "a batch outside an epoch");
  const std::int64_t begin = batch * options_.batch;
  const Rows share =
      share_of({begin, begin + std::min(options_.batch, options_.samples - begin)}, shard_);
  std::vector<std::int64_t> samples(static_cast<std::size_t>(share.end - share.begin));
  if (!options_.shuffle) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      samples[i] = share.begin + static_cast<std::int64_t>(i);
    }
    return samples;
  }
  const Permutation permutation(options_.samples,
                                seed_from({options_.seed, static_cast<std::uint64_t>(epoch)}));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i] = permutation.at(share.begin + static_cast<std::int64_t>(i));
  }
  return samples;
}

void SampleOrder::check(const DataPosition& position) const {
  const OrderOptions& then = position.order;
  if (then != options_) {
    std::string words = different("samples", then.samples, options_.samples) +
                        different("batch", then.batch, options_.batch) +
                        different("shuffle", then.shuffle ? 1 : 0, options_.shuffle ? 1 : 0);
    if (then.seed != options_.seed) {
      words += fmt::format(" seed was {} and is {}", then.seed, options_.seed);
    }
    throw InvalidArgument("data", fmt::format("the position is of another order of samples:{}; "
                                              "resume with the data and options it was saved with",
                                              words));
  }
  if (position.epoch < 0 || position.batch < 0 || position.batch >= num_batches()) {
    throw InvalidArgument("data", fmt::format("there is no batch {} in epoch {}; an epoch has {}",
                                              position.batch, position.epoch, num_batches()));
  }
}

}  // namespace pipewright
