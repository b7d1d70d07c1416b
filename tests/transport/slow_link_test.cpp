// Links of a set speed between threads: the conformance suite, and that messages take their time
// one after the other. Times are only ever held to be long enough, so that a slow machine passes.

#include "pipewright/transport/slow_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "pipewright/transport/inproc.h"
#include "tests/refusal.h"
#include "tests/transport/conformance.h"

namespace pipewright {
namespace {

using std::chrono::duration;
using std::chrono::microseconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kFast = 1e12;

std::unique_ptr<SlowLink> make_link(int num_ranks, double bytes_per_second,
                                    double deadline_seconds = 60) {
  const duration<double> deadline(deadline_seconds);
  return std::make_unique<SlowLink>(
      std::make_unique<InprocTransport>(num_ranks,
                                        std::vector<torch::Device>(kConformanceStages, torch::kCPU),
                                        deadline, microseconds(0)),
      bytes_per_second, deadline);
}

Message kilobytes(int count) { return {{torch::ones({count * 250})}}; }

MessageKey activation(int micro_batch) { return {MessageKind::kActivation, 1, micro_batch, 0}; }

class SlowLinks : public testing::TestWithParam<ConformanceCase> {};

TEST_P(SlowLinks, Conform) {
  const auto transport = make_link(kConformanceRanks, kFast);
  for (const std::string& thrown : on_threads(GetParam(), *transport)) EXPECT_EQ(thrown, "");
}

INSTANTIATE_TEST_SUITE_P(All, SlowLinks, testing::ValuesIn(conformance_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(SlowLinkTimes, FollowEachOtherOnALink) {
  const auto transport = make_link(2, 1e6);
  const auto start = steady_clock::now();
  const auto passed = [&] { return duration<double>(steady_clock::now() - start).count(); };
  for (int m = 0; m < 3; ++m) transport->send(1, activation(m), kilobytes(20));
  transport->receive(1, 0, activation(2));
  EXPECT_GE(passed(), 0.060);  // behind the two before it
  transport->receive(1, 0, activation(0));
  transport->receive(1, 0, activation(1));
}

// What is sent second is received first, within a deadline that is too short for both messages one
// after the other.
TEST(SlowLinkTimes, AreOfEachSenderAlone) {
  const auto transport = make_link(3, 1e6, 0.2);
  std::thread other([&] { transport->send(1, activation(0), kilobytes(180)); });
  other.join();
  transport->send(1, activation(1), kilobytes(180));
  EXPECT_EQ(transport->receive(1, 0, activation(1)).tensors.size(), 1U);
}

TEST(SlowLinkTimes, AreOfEachReceiverAlone) {
  const auto transport = make_link(3, 1e6, 0.2);
  transport->send(1, activation(0), kilobytes(180));
  transport->send(2, activation(1), kilobytes(180));
  EXPECT_EQ(transport->receive(2, 0, activation(1)).tensors.size(), 1U);
}

TEST(SlowLinkTimes, EndAtTheDeadlineWithTheMessage) {
  const auto transport = make_link(2, 10, 0.05);
  transport->send(1, activation(3), kilobytes(1));
  EXPECT_THAT(refusal([&] { transport->receive(1, 0, activation(3)); }),
              AllOf(HasSubstr("rank 1 waited 0.05 s for the activation of micro-batch 3"),
                    HasSubstr("link of 10 bytes a second")));
}

TEST(SlowLinkTimes, AreCutShortByAnAbortAndForgottenByAReset) {
  const auto transport = make_link(2, 10);
  transport->send(1, activation(0), kilobytes(1));
  std::thread other([&] { transport->abort(); });
  EXPECT_THAT(refusal([&] { transport->receive(1, 0, activation(0)); }),
              HasSubstr("another rank failed"));
  other.join();
  transport->reset();
  transport->send(1, activation(0), {});
  EXPECT_TRUE(transport->receive(1, 0, activation(0)).tensors.empty());
}

}  // namespace
}  // namespace pipewright
