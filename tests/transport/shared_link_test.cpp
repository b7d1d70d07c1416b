// Messages through memory that two processes share; here one process has both ends.

#include "pipewright/transport/shared_link.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "tests/refusal.h"
#include "tests/transport/conformance.h"

namespace pipewright {
namespace {

MessageKey key_of(int micro_batch) { return {MessageKind::kActivation, 1, micro_batch, 0}; }

Message message_of(double value, std::int64_t numbers = 4) {
  return {{torch::full({numbers}, value)}};
}

struct Link {
  SharedOutbox outbox;
  std::unique_ptr<SharedInbox> inbox = SharedInbox::open(::getpid(), outbox.file());

  double take(int micro_batch) const {
    if (!inbox->has(key_of(micro_batch))) return -1;
    return inbox->take(key_of(micro_batch)).tensors[0][0].item<double>();
  }
};

TEST(SharedLink, CarriesEveryKindOfMessage) {
  Link link;
  for (const auto& [name, message] : sample_messages()) {
    bool plain_ones = true;  // others are refused before they come here
    for (const auto& tensor : message.tensors)
      plain_ones &= !tensor.defined() || tensor.layout() == torch::kStrided;
    if (!plain_ones) continue;
    link.outbox.send(key_of(0), plain(message));
    ASSERT_TRUE(link.inbox->has(key_of(0))) << name;
    expect_same(link.inbox->take(key_of(0)), plain(message), name);
  }
  EXPECT_TRUE(link.outbox.all_taken());
}

TEST(SharedLink, MessagesAreTakenInAnyOrderAndThoseOfOneKeyInTheirs) {
  Link link;
  for (const int i : {0, 1, 2}) link.outbox.send(key_of(i), message_of(i));
  link.outbox.send(key_of(1), message_of(7));
  EXPECT_FALSE(link.outbox.all_taken());
  EXPECT_EQ(link.take(2), 2);
  EXPECT_EQ(link.take(1), 1);
  EXPECT_EQ(link.take(0), 0);
  EXPECT_FALSE(link.outbox.all_taken());
  EXPECT_EQ(link.take(1), 7);
  EXPECT_EQ(link.take(1), -1);
  EXPECT_TRUE(link.outbox.all_taken());
}

TEST(SharedLink, WhatWasTakenIsTheReceiversOwn) {
  Link link;
  link.outbox.send(key_of(0), message_of(1));
  ASSERT_TRUE(link.inbox->has(key_of(0)));
  const Message first = link.inbox->take(key_of(0));
  link.outbox.send(key_of(0), message_of(2));  // into the same slot
  EXPECT_EQ(first.tensors[0][0].item<double>(), 1);
}

TEST(SharedLink, SlotsAreUsedAgainAndManyTakeFewFiles) {
  Link link;
  for (int i = 0; i < 200; ++i) {
    link.outbox.send(key_of(i), message_of(i));
    EXPECT_EQ(link.take(i), i);
  }
  EXPECT_EQ(link.outbox.num_segments(), 1U);
  for (int i = 0; i < 3000; ++i) link.outbox.send(key_of(i), message_of(i));
  EXPECT_LE(link.outbox.num_segments(), 13U);  // of 1, 1, 2, 4, ... slots
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(link.take(i), i);
  for (const int numbers : {1 << 20, 3, 70'000}) {
    link.outbox.send(key_of(0), message_of(numbers, numbers));
    EXPECT_EQ(link.take(0), numbers);
  }
}

TEST(SharedLink, AWaitEndsWithAMessageAWakeOrItsTime) {
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  Link link;
  link.inbox->wait(microseconds(10), milliseconds(1));  // nothing comes
  std::thread sender([&] { link.outbox.send(key_of(3), message_of(5)); });
  while (!link.inbox->has(key_of(3))) link.inbox->wait(microseconds(0), std::chrono::minutes(1));
  EXPECT_EQ(link.take(3), 5);
  sender.join();
  std::atomic<bool> woken = false;
  std::thread waker([&] {
    while (!woken) {  // it may come before the wait
      link.inbox->wake();
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  link.inbox->wait(microseconds(0), std::chrono::minutes(10));
  woken = true;
  waker.join();
}

TEST(SharedLink, ManyMessagesBetweenTwoThreadsArriveWhole) {
  Link link;
  constexpr int kMessages = 5000;
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i) link.outbox.send(key_of(i), message_of(i, 1 + i % 3000));
  });
  for (int i = 0; i < kMessages; ++i) {
    while (!link.inbox->has(key_of(i)))
      link.inbox->wait(std::chrono::microseconds(5), std::chrono::milliseconds(100));
    const torch::Tensor tensor = link.inbox->take(key_of(i)).tensors[0];
    ASSERT_EQ(tensor.numel(), 1 + i % 3000);
    ASSERT_TRUE((tensor == static_cast<double>(i)).all().item<bool>()) << i;
  }
  sender.join();
  EXPECT_TRUE(link.outbox.all_taken());
}

TEST(SharedLink, ASenderThatLeavesIsNoticed) {
  auto outbox = std::make_unique<SharedOutbox>();
  const auto inbox = SharedInbox::open(::getpid(), outbox->file());
  EXPECT_FALSE(inbox->closed());
  std::thread leaver([&] { outbox.reset(); });
  while (!inbox->closed()) inbox->wait(std::chrono::microseconds(0), std::chrono::minutes(1));
  leaver.join();
}

TEST(SharedLink, WhatASenderTookWithItIsMissedInWords) {
  auto outbox = std::make_unique<SharedOutbox>();
  const auto inbox = SharedInbox::open(::getpid(), outbox->file());
  outbox->send(key_of(0), message_of(1));
  ASSERT_TRUE(inbox->has(key_of(0)));
  outbox.reset();
  EXPECT_THAT(refusal([&] { inbox->take(key_of(0)); }), testing::HasSubstr("is gone"));
}

TEST(SharedLink, MoreThanAReceiverEverLooksAtIsRefused) {
  Link link;
  const Message nothing;
  const auto flood = [&] {
    for (std::uint32_t i = 0; i <= detail::kMostRecords; ++i) link.outbox.send(key_of(0), nothing);
  };
  EXPECT_THAT(refusal(flood), testing::HasSubstr("messages wait for a rank that does not take"));
}

TEST(SharedLink, AProcessThatIsNotThereIsNotReached) {
  const SharedOutbox outbox;
  EXPECT_EQ(SharedInbox::open(::getpid(), 1'000'000), nullptr);
  EXPECT_EQ(SharedInbox::open(-1, outbox.file()), nullptr);
  const int other = ::open("/dev/null", O_RDWR);
  EXPECT_EQ(SharedInbox::open(::getpid(), other), nullptr);
  ::close(other);
}

TEST(MachineIdentity, IsTheSameWithinAMachine) {
  EXPECT_NE(machine_identity(), "");
  EXPECT_EQ(machine_identity(), machine_identity());
}

}  // namespace
}  // namespace pipewright
