#pragma once

#include <cstdint>
#include <memory>

#include "pipewright/data/source.h"
#include "pipewright/input/order.h"
#include "pipewright/input/prefetch.h"

namespace pipewright {

struct LoaderOptions {
  std::int64_t batch = 32;  // rows of the whole mini-batch, over all replicas
  bool shuffle = true;      // anew in every epoch
  std::uint64_t seed = 1;
  int workers = 1;   // threads that make batches ahead; 0: next() makes them
  int prefetch = 4;  // batches made ahead at most; at least 1
  Shard shard = {};  // by default every process gets the whole batch, as the Trainer wants it
};

/// Batches of a source, epoch after epoch without end. An epoch has every sample once; its last
/// batch is smaller where the batch does not divide them. Which batches come depends on the source,
/// batch, shuffle and seed: not on workers, not on the machine, not on where the run was resumed.
///
///     DataLoader loader(source, {.batch = 64, .seed = 7});
///     for (int step = 0; step < steps; ++step) {
///       const SampleBatch batch = loader.next();
///       trainer.step({batch.inputs, batch.targets});
///     }
///
/// For one thread.
class DataLoader {
 public:
  /// Throws InvalidArgument for options that do not fit the source.
  DataLoader(std::shared_ptr<const DataSource> source, const LoaderOptions& options);
  ~DataLoader() = default;
  DataLoader(const DataLoader&) = delete;  // its workers know where it is
  DataLoader(DataLoader&&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;
  DataLoader& operator=(DataLoader&&) = delete;

  /// The next batch. Throws what the source threw for it, each time it is asked for; position() is
  /// then still that batch's.
  SampleBatch next();

  std::int64_t batches_per_epoch() const { return order_.num_batches(); }

  /// Of the batch that next() gives: save it with the model (to_json), and seek() it to go on.
  DataPosition position() const;

  /// Goes on from there. Throws InvalidArgument, and stays where it is, for a position of other
  /// data or of other options.
  void seek(const DataPosition& position);

 private:
  SampleBatch make(std::int64_t number) const;
  void start(std::int64_t number);

  std::shared_ptr<const DataSource> source_;
  LoaderOptions options_;
  SampleOrder order_;
  std::unique_ptr<Prefetch<SampleBatch>> batches_;  // numbered over all epochs
};

}  // namespace pipewright
