#include "pipewright/exec/sharing.h"

namespace pipewright {
namespace {

/// Beyond those of the topics.
MessageKey key_of(std::int64_t round) {
  return {MessageKind::kNumbers, 0, 256 + static_cast<int>(round % 256), 0};
}

}  // namespace

/// Of the rank's next call about a topic; `index` is to be the sender.
MessageKey Sharing::next_key(int rank, Topic topic) {
  const int number = static_cast<int>(topic);
  // A rank may be one call ahead of another, never two.
  const int round = rounds_[static_cast<std::size_t>(rank)].by_topic[number]++ % 2;
  return {MessageKind::kNumbers, 0, 2 * number + round, rank};
}

void Sharing::send_to_others(int rank, MessageKey key, const std::vector<double>& numbers) {
  for (int other = 0; other < num_ranks_; ++other) {
    if (other == rank) continue;
    key.index = other;
    transport_->expect(other, key);
    key.index = rank;
    transport_->send(other, key, {{torch::tensor(numbers, torch::kFloat64)}});
  }
}

std::vector<std::vector<double>> Sharing::receive_from_others(int rank, MessageKey key,
                                                              std::vector<double> own) {
  std::vector<std::vector<double>> all(static_cast<std::size_t>(num_ranks_));
  for (int other = 0; other < num_ranks_; ++other) {
    if (other == rank) continue;
    key.index = other;
    const torch::Tensor values = transport_->receive(rank, other, key).tensors[0];
    const auto* first = values.data_ptr<double>();
    all[static_cast<std::size_t>(other)].assign(first, first + values.numel());
  }
  all[static_cast<std::size_t>(rank)] = std::move(own);
  return all;
}

std::vector<std::vector<double>> Sharing::share(int rank, Topic topic,
                                                std::vector<double> numbers) {
  const MessageKey key = next_key(rank, topic);
  send_to_others(rank, key, numbers);
  return receive_from_others(rank, key, std::move(numbers));
}

void Sharing::tell(int rank, std::int64_t round, const std::vector<double>& numbers) {
  send_to_others(rank, key_of(round), numbers);
}

std::vector<std::vector<double>> Sharing::hear(int rank, std::int64_t round,
                                               std::vector<double> own) {
  return receive_from_others(rank, key_of(round), std::move(own));
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
