#include "pipewright/data/loader.h"

#include <fmt/format.h>

#include <utility>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

void check_options(const LoaderOptions& options) {
  if (options.workers < 0) {
    throw InvalidArgument("data", fmt::format("workers = {}; use 0 or more", options.workers));
  }
  if (options.prefetch < 1) {
    throw InvalidArgument("data", fmt::format("prefetch = {}; use 1 or more", options.prefetch));
  }
}

}  // namespace

DataLoader::DataLoader(std::shared_ptr<const DataSource> source, const LoaderOptions& options)
    : source_(std::move(source)),
      options_(options),
      order_({source_->size(), options.batch, options.shuffle, options.seed}, options.shard) {
  check_options(options);
  start(0);
}

void DataLoader::start(std::int64_t number) {
  batches_.reset();  // its threads end before others begin
  batches_ =
      std::make_unique<Prefetch<SampleBatch>>(options_.workers, options_.prefetch, number,
                                              [this](std::int64_t wanted) { return make(wanted); });
}

SampleBatch DataLoader::make(std::int64_t number) const {
  const std::int64_t epoch = number / batches_per_epoch();
  return source_->batch(order_.rows(epoch, number % batches_per_epoch()), epoch);
}

SampleBatch DataLoader::next() { return batches_->take(); }

DataPosition DataLoader::position() const {
  const std::int64_t number = batches_->next();
  return {number / batches_per_epoch(), number % batches_per_epoch(), order_.options()};
}

void DataLoader::seek(const DataPosition& position) {
  order_.check(position);
  start(position.epoch * batches_per_epoch() + position.batch);
}

}  // namespace pipewright
