// How messages look between processes.

#include "pipewright/transport/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "pipewright/base/error.h"
#include "tests/refusal.h"
#include "tests/transport/conformance.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Numbers = std::vector<std::int64_t>;

TEST(Wire, MessagesComeOutAsTheyWentIn) {
  for (const auto& [name, message] : sample_messages()) {
    SCOPED_TRACE(name);
    const Message sent = plain(message);
    const MessageHeader header = header_of(sent);
    EXPECT_EQ(header_from(to_numbers(header)), header);
    const torch::Tensor buffer = pack(sent, header);
    EXPECT_EQ(static_cast<std::int64_t>(buffer.nbytes()), header.buffer_bytes());
    EXPECT_EQ(mark_of(buffer), Mark::kAsExpected);
    EXPECT_NO_THROW(expect_same(unpack(buffer, header), message, name));
  }
}

TEST(Wire, TensorsOutliveTheBufferTheyCameIn) {
  const Message sent = {{torch::arange(1000), torch::ones({3})}};
  const MessageHeader header = header_of(sent);
  Message got = unpack(pack(sent, header), header);
  got.tensors.pop_back();
  EXPECT_TRUE(got.tensors[0].equal(torch::arange(1000)));
}

TEST(Wire, AMarkSaysThatTheDescriptionHasChanged) {
  const torch::Tensor buffer = changed_buffer(64);
  EXPECT_EQ(buffer.nbytes(), 64);
  EXPECT_EQ(mark_of(buffer), Mark::kHeaderFollows);
}

TEST(Wire, RefusesSparseAndQuantizedTensors) {
  EXPECT_THAT(refusal([] { header_of(plain({{torch::eye(3).to_sparse()}})); }),
              AllOf(HasSubstr("[transport] a sparse tensor cannot be sent to another process"),
                    HasSubstr("make it a plain one")));
  const auto quantized = torch::quantize_per_tensor(torch::ones({4}), 0.1, 0, torch::kQInt8);
  EXPECT_THAT(refusal([&] { header_of(plain({{quantized}})); }),
              HasSubstr("a quantized tensor cannot be sent"));
}

TEST(Wire, RefusesHeadersThatDescribeNothing) {
  const auto refused = [](const Numbers& numbers) {
    return refusal([&] { header_from(numbers); });
  };
  constexpr std::int64_t kFloat = 6;
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  EXPECT_THAT(refused({}), HasSubstr("it ends early"));
  EXPECT_THAT(refused({1}), HasSubstr("it ends early"));
  EXPECT_THAT(refused({-1, 0}), HasSubstr("the number of tensors"));
  EXPECT_THAT(refused({1 << 20, 0}), HasSubstr("the number of tensors"));
  EXPECT_THAT(refused({0, 2}), HasSubstr("with gradients or not"));
  EXPECT_THAT(refused({0, 0, 0}), HasSubstr("it goes on after its end"));
  EXPECT_THAT(refused({1, 0, 2, 0, kFloat, 0}), HasSubstr("defined or not"));
  EXPECT_THAT(refused({1, 0, 1, 0, 1000, 0}), HasSubstr("its dtype"));
  EXPECT_THAT(refused({1, 0, 1, 0, -1, 0}), HasSubstr("its dtype"));
  for (const auto dtype : {torch::kQInt8, torch::kQUInt8, torch::ScalarType::Undefined})
    EXPECT_THAT(refused({1, 0, 1, 0, static_cast<int>(dtype), 0}), HasSubstr("its dtype"));
  EXPECT_THAT(refused({1, 0, 1, 0, kFloat, 65}), HasSubstr("its dimensions"));
  EXPECT_THAT(refused({1, 0, 1, 0, kFloat, 1, -1, 1}), HasSubstr("a size"));
  EXPECT_THAT(refused({1, 0, 1, 0, kFloat, 1, 4, -1}), HasSubstr("a stride"));
  EXPECT_THAT(refused({1, 0, 1, 0, kFloat, 1, 4, kHuge}), HasSubstr("its span"));
  EXPECT_THAT(refused({1, 0, 1, 0, kFloat, 2, kHuge, 0, kHuge, 0}), HasSubstr("its elements"));
  EXPECT_THAT(refused({1, 0, 1, 0, kFloat, 1, 4}),
              AllOf(HasSubstr("[transport] a message's header makes no sense: it ends early"),
                    HasSubstr("do all processes run the same program?")));
}

/// LibTorch 2.x has types, bits and parts of a byte, that it cannot copy.
bool can_copy(torch::ScalarType type) {
  return c10::isIntegralType(type, /*includeBool=*/true) || c10::isFloatingType(type) ||
         c10::isComplexType(type);
}

/// A header that was let pass must be safe to use, up to the size of its buffer.
void use(const MessageHeader& header) {
  constexpr std::int64_t kMost = 1 << 16;
  const std::int64_t bytes = header.buffer_bytes();
  ASSERT_GT(bytes, 0);
  if (bytes > kMost) return;
  const Message message = unpack(torch::zeros({bytes}, torch::kByte), header);
  ASSERT_EQ(message.tensors.size(), header.tensors.size());
  for (const auto& tensor : message.tensors) {
    if (tensor.defined() && tensor.numel() < kMost && can_copy(tensor.scalar_type()))
      tensor.clone();
  }
}

TEST(Wire, GarbageIsRefusedOrHarmless) {
  std::vector<Numbers> seeds;
  for (const auto& [name, message] : sample_messages())
    seeds.push_back(to_numbers(header_of(plain(message))));
  std::mt19937_64 random(1);  // NOLINT(cert-msc51-cpp): the same numbers each time
  const auto below = [&](std::size_t most) { return static_cast<std::size_t>(random() % most); };
  const auto number = [&]() -> std::int64_t {
    const Numbers odd = {-1,        0,         1,
                         2,         63,        64,
                         65,        1 << 30,   std::int64_t{1} << 40,
                         INT64_MAX, INT64_MIN, static_cast<std::int64_t>(random() >> below(64))};
    return odd[below(odd.size())];
  };
  int num_refused = 0;
  constexpr int kRounds = 20000;
  for (int round = 0; round < kRounds; ++round) {
    Numbers numbers = seeds[below(seeds.size())];
    for (std::size_t change = below(4) + 1; change > 0; --change) {
      if (numbers.empty() || below(8) == 0) numbers.push_back(number());
      numbers[below(numbers.size())] = number();
      if (below(8) == 0) numbers.resize(below(numbers.size() + 1));
    }
    try {
      use(header_from(numbers));
    } catch (const TransportError&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, kRounds / 4);
  EXPECT_LT(num_refused, kRounds);  // else nothing of use() was tried
}

}  // namespace
}  // namespace pipewright
