#include "tests/transport/conformance.h"

#include <fmt/format.h>

#include <stdexcept>
#include <thread>

namespace pipewright {
namespace {

MessageKey activation(int micro_batch, int stage = 1) {
  return {MessageKind::kActivation, stage, micro_batch, 0};
}

torch::Tensor numbers(std::int64_t count, double first) {
  return torch::arange(count, torch::kFloat64) + first;
}

Message one(torch::Tensor tensor) { return {{std::move(tensor)}}; }

int next(int rank, int num_ranks) { return (rank + 1) % num_ranks; }
int previous(int rank, int num_ranks) { return (rank + num_ranks - 1) % num_ranks; }

/// All wait for all. A key is used again only when its message was taken, which a rank that got
/// what it wanted does not know of the others.
void meet(Transport& transport, int rank, int num_ranks, int round) {
  const auto key = [&](int from) {  // a rank may be one meeting ahead of another, never two
    return MessageKey{MessageKind::kNumbers, 0, round % 2, from};
  };
  for (int to = 0; to < num_ranks; ++to) {
    if (to != rank) transport.send(to, key(rank), one(torch::zeros({1})));
  }
  for (int from = 0; from < num_ranks; ++from) {
    if (from != rank) transport.receive(rank, from, key(from));
  }
}

/// Around the ring: what every rank sends to the next one arrives as it was.
void pass_on(Transport& transport, int rank, int num_ranks, const MessageKey& key,
             const std::function<Message(int from)>& make, const std::string& what) {
  const int from = previous(rank, num_ranks);
  transport.send(next(rank, num_ranks), key, make(rank));
  expect_same(transport.receive(rank, from, key), make(from), what);
}

void every_kind_of_tensor(Transport& transport, int rank, int num_ranks) {
  int micro_batch = 0;
  for (const auto& [name, message] : sample_messages()) {
    const auto make = [&message = message](int) { return message; };
    pass_on(transport, rank, num_ranks, activation(micro_batch++), make, name);
  }
}

/// One key for all of them: what is known of the one before helps nobody.
void descriptions_that_change_each_time(Transport& transport, int rank, int num_ranks) {
  for (int round = 0; round < 2; ++round) {
    for (const auto& [name, message] : sample_messages()) {
      const auto make = [&message = message](int) { return message; };
      for (int again = 0; again < 2; ++again) {
        pass_on(transport, rank, num_ranks, activation(0), make, "after another: " + name);
        meet(transport, rank, num_ranks, again);
      }
    }
  }
}

void shapes_that_change_and_change_back(Transport& transport, int rank, int num_ranks) {
  int round = 0;
  for (const int rows : {4, 4, 7, 7, 4, 0, 4, 1, 4}) {
    const auto make = [rows](int from) {
      return Message{{torch::full({rows, 3}, from + rows, torch::kFloat32)}, {1}};
    };
    pass_on(transport, rank, num_ranks, activation(2), make, fmt::format("{} rows", rows));
    meet(transport, rank, num_ranks, round++);
  }
}

void receives_in_any_order(Transport& transport, int rank, int num_ranks) {
  constexpr int kCount = 12;
  const int from = previous(rank, num_ranks);
  for (int round = 0; round < 3; ++round) {
    for (int m = 0; m < kCount; ++m) {
      transport.send(next(rank, num_ranks), activation(m), one(numbers(5 + m, rank * 100 + m)));
    }
    for (int i = 0; i < kCount; ++i) {
      const int m = round == 0 ? kCount - 1 - i : i * 5 % kCount;
      expect_same(transport.receive(rank, from, activation(m)), one(numbers(5 + m, from * 100 + m)),
                  fmt::format("micro-batch {}", m));
    }
    meet(transport, rank, num_ranks, round);
  }
}

void expecting_before_after_and_not_at_all(Transport& transport, int rank, int num_ranks) {
  const int from = previous(rank, num_ranks);
  for (int round = 0; round < 6; ++round) {
    const std::int64_t rows = round < 4 ? 3 : 5;
    if (round % 3 == 0) transport.expect(from, activation(0));
    transport.send(next(rank, num_ranks), activation(0), one(numbers(rows, rank + round)));
    if (round % 3 == 1) transport.expect(from, activation(0));
    if (round == 3) transport.expect(from, activation(0));  // once more does no harm
    expect_same(transport.receive(rank, from, activation(0)), one(numbers(rows, from + round)),
                fmt::format("round {}", round));
    meet(transport, rank, num_ranks, round);
  }
}

/// All send all before anyone receives: a send that waited would wait for ever.
void many_under_way_in_all_directions(Transport& transport, int rank, int num_ranks) {
  constexpr int kCount = 40;
  constexpr std::int64_t kElements = 20000;  // 160 kB: more than a socket holds
  for (int m = 0; m < kCount; ++m) {
    for (int to = 0; to < num_ranks; ++to) {
      if (to == rank) continue;
      transport.send(to, {MessageKind::kGradient, rank, m, 0}, one(numbers(kElements, rank + m)));
    }
  }
  for (int from = 0; from < num_ranks; ++from) {
    if (from == rank) continue;
    for (int m = 0; m < kCount; ++m) {
      expect_same(transport.receive(rank, from, {MessageKind::kGradient, from, m, 0}),
                  one(numbers(kElements, from + m)), fmt::format("{} of rank {}", m, from));
    }
  }
}

void keys_that_differ_in_one_part(Transport& transport, int rank, int num_ranks) {
  const std::vector<MessageKey> keys = {
      {MessageKind::kSkip, 1, 0, 0},       {MessageKind::kSkip, 1, 0, 1},
      {MessageKind::kSkip, 1, 0, 31},      {MessageKind::kSkip, 1, 1, 0},
      {MessageKind::kSkip, 2, 0, 0},       {MessageKind::kSkipGradient, 1, 0, 0},
      {MessageKind::kActivation, 1, 0, 0}, {MessageKind::kTiedGradient, 1, 0, 1},
      {MessageKind::kTiedValue, 1, 0, 1},  {MessageKind::kNumbers, 0, 0, 0}};
  const auto value = [](int from, std::size_t i) {
    return one(torch::full({2}, static_cast<double>(100 * from) + static_cast<double>(i)));
  };
  for (std::size_t i = 0; i < keys.size(); ++i)
    transport.send(next(rank, num_ranks), keys[i], value(rank, i));
  const int from = previous(rank, num_ranks);
  for (std::size_t i = keys.size(); i-- > 0;)
    expect_same(transport.receive(rank, from, keys[i]), value(from, i), to_text(keys[i]));
}

void one_key_to_several_ranks(Transport& transport, int rank, int num_ranks) {
  for (int round = 0; round < 3; ++round) {
    const auto key = [](int from) { return MessageKey{MessageKind::kTiedValue, 0, 0, from}; };
    for (int to = 0; to < num_ranks; ++to) {
      if (to == rank) continue;
      transport.expect(to, key(to));
      transport.send(to, key(rank), one(numbers(2 + to, rank + round)));
    }
    for (int from = 0; from < num_ranks; ++from) {
      if (from == rank) continue;
      expect_same(transport.receive(rank, from, key(from)), one(numbers(2 + rank, from + round)),
                  fmt::format("round {} from rank {}", round, from));
    }
    meet(transport, rank, num_ranks, round);
  }
}

void large_messages(Transport& transport, int rank, int num_ranks) {
  constexpr std::int64_t kElements = 16 << 20;  // 64 MiB
  for (int round = 0; round < 2; ++round) {
    const auto make = [&](int from) {
      return one(torch::arange(kElements, torch::kInt32) + from + round);
    };
    pass_on(transport, rank, num_ranks, activation(0), make, "64 MiB");
    meet(transport, rank, num_ranks, round);
  }
}

void many_small_messages(Transport& transport, int rank, int num_ranks) {
  constexpr int kCount = 1000;
  const int from = previous(rank, num_ranks);
  for (int i = 0; i < kCount; ++i) {
    const MessageKey key = activation(i % 8);
    transport.send(next(rank, num_ranks), key, one(torch::full({3}, rank + i)));
    expect_same(transport.receive(rank, from, key), one(torch::full({3}, from + i)),
                fmt::format("message {}", i));
  }
}

/// Messages may be sent, and later ones taken, before the first is asked for.
void a_sender_that_is_ahead(Transport& transport, int rank, int num_ranks) {
  const MessageKey turn = activation(7);
  const auto value = [](int step) { return one(numbers(step == 1 ? 9 : 4, step)); };
  for (int sender = 0; sender < num_ranks; ++sender) {
    const int receiver = next(sender, num_ranks);
    if (rank == sender) {
      for (int step = 0; step < 3; ++step) transport.send(receiver, activation(step), value(step));
      transport.send(receiver, turn, one(torch::zeros({1})));
    }
    if (rank != receiver) continue;
    transport.receive(rank, sender, turn);
    for (int step = 0; step < 3; ++step)
      expect_same(transport.receive(rank, sender, activation(step)), value(step), "ahead");
  }
}

void messages_to_oneself(Transport& transport, int rank, int /*num_ranks*/) {
  for (int round = 0; round < 3; ++round) {
    transport.expect(rank, activation(round, 3));
    transport.send(rank, activation(round, 3), one(numbers(4, rank + round)));
    expect_same(transport.receive(rank, rank, activation(round, 3)), one(numbers(4, rank + round)),
                "to itself");
  }
}

/// Layers may write in place: that one tensor of a message changes must not show on another, nor
/// on what the sender sends next.
void tensors_that_are_independent(Transport& transport, int rank, int num_ranks) {
  for (int round = 0; round < 2; ++round) {
    transport.send(next(rank, num_ranks), activation(0), {{numbers(4, 1), numbers(4, 10)}});
    Message got = transport.receive(rank, previous(rank, num_ranks), activation(0));
    auto a = got.tensors[0];
    auto b = got.tensors[1].requires_grad_();
    const auto product = (b * b).sum();
    a.relu_();  // must not count as a change of b, which the backward needs
    product.backward();
    expect_same(b.grad(), 2 * numbers(4, 10), "the gradient");
    meet(transport, rank, num_ranks, round);
  }
}

}  // namespace

void expect_that(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("does not hold: " + what);
}

void expect_same(const torch::Tensor& got, const torch::Tensor& expected, const std::string& what) {
  expect_that(got.defined() == expected.defined(), what + ": defined");
  if (!got.defined()) return;
  expect_that(got.scalar_type() == expected.scalar_type(), what + ": dtype");
  expect_that(got.sizes() == expected.sizes(), what + ": sizes");
  expect_that(got.strides() == expected.strides(), what + ": strides");
  const auto bytes = [](const torch::Tensor& t) {
    return t.resolve_conj().resolve_neg().contiguous().reshape({-1}).view(torch::kByte);
  };
  expect_that(bytes(got).equal(bytes(expected)), what + ": values");
}

void expect_same(const Message& got, const Message& expected, const std::string& what) {
  expect_that(got.tensors.size() == expected.tensors.size(), what + ": number of tensors");
  expect_that(got.needs_gradient == expected.needs_gradient, what + ": needs_gradient");
  for (std::size_t i = 0; i < got.tensors.size(); ++i)
    expect_same(got.tensors[i], expected.tensors[i], fmt::format("{}, tensor {}", what, i));
}

const std::vector<ConformanceCase>& conformance_cases() {
  static const std::vector<ConformanceCase> cases = {
      {"EveryKindOfTensor", every_kind_of_tensor},
      {"DescriptionsThatChangeEachTime", descriptions_that_change_each_time},
      {"ShapesThatChangeAndChangeBack", shapes_that_change_and_change_back},
      {"ReceivesInAnyOrder", receives_in_any_order},
      {"ExpectingBeforeAfterAndNotAtAll", expecting_before_after_and_not_at_all},
      {"ManyUnderWayInAllDirections", many_under_way_in_all_directions},
      {"KeysThatDifferInOnePart", keys_that_differ_in_one_part},
      {"OneKeyToSeveralRanks", one_key_to_several_ranks},
      {"LargeMessages", large_messages},
      {"ManySmallMessages", many_small_messages},
      {"ASenderThatIsAhead", a_sender_that_is_ahead},
      {"MessagesToOneself", messages_to_oneself},
      {"TensorsThatAreIndependent", tensors_that_are_independent},
  };
  return cases;
}

std::vector<std::string> on_threads(const ConformanceCase& one, Transport& transport) {
  std::vector<std::string> thrown(kConformanceRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kConformanceRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        one.body(transport, rank, kConformanceRanks);
      } catch (const std::exception& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
        transport.abort();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return thrown;
}

}  // namespace pipewright
