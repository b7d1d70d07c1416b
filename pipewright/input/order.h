#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace pipewright {

/// Which samples are in which batch, and all that this depends on.
struct OrderOptions {
  std::int64_t samples = 0;
  std::int64_t batch = 0;  // rows of the whole mini-batch, over all replicas
  bool shuffle = true;     // anew in every epoch
  std::uint64_t seed = 1;

  friend bool operator==(const OrderOptions&, const OrderOptions&) = default;
};

/// One replica's rows of every batch. Shares differ by at most one row; the first ones are the
/// larger.
struct Shard {
  int replica = 0;
  int replicas = 1;
};

/// Where a pass over the data stands: the next batch, and the order it is a batch of.
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  // of the epoch, from 0
  OrderOptions order;

  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

nlohmann::json to_json(const DataPosition& position);

/// Throws InvalidArgument naming the member that is missing, unknown or no number it can be.
DataPosition data_position_from_json(const nlohmann::json& value);

/// The order of samples. Every sample is in one batch of every epoch; the last batch of an epoch
/// has fewer rows where the batch does not divide the samples.
class SampleOrder {
 public:
  /// Throws InvalidArgument for sizes below 1, and for a last batch with fewer rows than replicas.
  explicit SampleOrder(const OrderOptions& options, const Shard& shard = {});

  const OrderOptions& options() const { return options_; }
  std::int64_t num_batches() const;  // of an epoch

  /// The samples of a batch (or of the shard's share of it), in order.
  std::vector<std::int64_t> rows(std::int64_t epoch, std::int64_t batch) const;

  /// Throws InvalidArgument where the position is of another order or outside an epoch.
  void check(const DataPosition& position) const;

 private:
  OrderOptions options_;
  Shard shard_;
};

}  // namespace pipewright
