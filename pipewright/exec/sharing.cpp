#include "pipewright/exec/sharing.h"

namespace pipewright {

/// Of the rank's next call about a topic; `index` is to be the sender.
MessageKey Sharing::next_key(int rank, Topic topic) {
  const int number = static_cast<int>(topic);
  // A rank may be one call ahead of another, never two.
  const int round = rounds_[static_cast<std::size_t>(rank)].by_topic[number]++ % 2;
  return {MessageKind::kNumbers, 0, 2 * number + round, rank};
}

std::vector<std::vector<double>> Sharing::share(int rank, Topic topic,
                                                std::vector<double> numbers) {
  const MessageKey own = next_key(rank, topic);
  const auto key = [&](int from) { return MessageKey{own.kind, own.stage, own.micro_batch, from}; };
  for (int other = 0; other < num_ranks_; ++other) {
    if (other == rank) continue;
    transport_->expect(other, key(other));
    transport_->send(other, key(rank), {{torch::tensor(numbers, torch::kFloat64)}});
  }
  std::vector<std::vector<double>> all(static_cast<std::size_t>(num_ranks_));
  for (int other = 0; other < num_ranks_; ++other) {
    if (other == rank) continue;
    const torch::Tensor values = transport_->receive(rank, other, key(other)).tensors[0];
    const auto* first = values.data_ptr<double>();
    all[static_cast<std::size_t>(other)].assign(first, first + values.numel());
  }
  all[static_cast<std::size_t>(rank)] = std::move(numbers);
  return all;
}

Tensors Sharing::share_from(int root, int rank, const Tensors& tensors) {
  MessageKey key = next_key(rank, Topic::kOutputs);
  key.index = root;
  if (rank != root) return transport_->receive(rank, root, key).tensors;
  for (int other = 0; other < num_ranks_; ++other) {
    if (other != rank) transport_->send(other, key, {tensors});
  }
  return tensors;
}

void Sharing::reset() { rounds_.assign(rounds_.size(), {}); }

}  // namespace pipewright
