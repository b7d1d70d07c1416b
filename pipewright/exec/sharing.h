#pragma once

#include <vector>

#include "pipewright/nn/tensors.h"
#include "pipewright/transport/transport.h"

namespace pipewright {

/// Numbers that every rank tells every other one. As all wait for all, it is where they meet.
class Sharing {
 public:
  /// What the numbers are about: each once a step, in this order or not at all.
  enum class Topic : std::uint8_t { kWeights, kNorms, kTotals, kOutputs };

  Sharing(Transport* transport, int num_ranks)
      : transport_(transport),
        num_ranks_(num_ranks),
        rounds_(static_cast<std::size_t>(num_ranks)) {}

  /// Every rank's numbers, by rank; returns when all have called it. From the rank's own thread.
  /// Throws TransportError at the deadline, or where the transport was aborted.
  std::vector<std::vector<double>> share(int rank, Topic topic, std::vector<double> numbers);

  /// The tensors of one rank in all of them, on the CPU.
  Tensors share_from(int root, int rank, const Tensors& tensors);

  /// The same in two parts, for ranks that do not wait for each other: tell the others, and some
  /// rounds later hear what they told. Rounds count up from any number; of less than 256 of them
  /// may something be on its way.
  void tell(int rank, std::int64_t round, const std::vector<double>& numbers);
  std::vector<std::vector<double>> hear(int rank, std::int64_t round, std::vector<double> own);

  /// After a failure. No rank may be in a call.
  void reset();

 private:
  struct Rounds {
    int by_topic[4] = {0, 0, 0, 0};
  };
  MessageKey next_key(int rank, Topic topic);
  void send_to_others(int rank, MessageKey key, const std::vector<double>& numbers);
  std::vector<std::vector<double>> receive_from_others(int rank, MessageKey key,
                                                       std::vector<double> own);

  Transport* transport_;
  int num_ranks_;
  std::vector<Rounds> rounds_;  // by rank: calls so far
};

}  // namespace pipewright
