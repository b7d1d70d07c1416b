// Ranks as threads of one process: the conformance suite, and the ends of a wait.

#include "pipewright/transport/inproc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "pipewright/base/error.h"
#include "tests/refusal.h"
#include "tests/transport/conformance.h"

namespace pipewright {
namespace {

using std::chrono::duration;
using std::chrono::microseconds;
using testing::AllOf;
using testing::HasSubstr;

InprocTransport make_inproc(int num_ranks, double deadline_seconds, int spin_microseconds) {
  return {num_ranks, std::vector<torch::Device>(kConformanceStages, torch::kCPU),
          duration<double>(deadline_seconds), microseconds(spin_microseconds)};
}

class Inproc : public testing::TestWithParam<ConformanceCase> {};

TEST_P(Inproc, Conforms) {
  for (const int spin : {0, 2000}) {
    InprocTransport transport = make_inproc(kConformanceRanks, 60, spin);
    for (const std::string& thrown : on_threads(GetParam(), transport)) EXPECT_EQ(thrown, "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Inproc, testing::ValuesIn(conformance_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(InprocWaits, EndAtTheDeadlineWithBothRanksAndTheMessage) {
  InprocTransport transport = make_inproc(2, 0.05, 0);
  EXPECT_THAT(refusal([&] {
                transport.receive(1, 0, {MessageKind::kActivation, 1, 3, 0});
              }),
              AllOf(HasSubstr("[transport] rank 1 waited 0.05 s for the activation of micro-batch "
                              "3 for stage 1 from rank 0"),
                    HasSubstr("raise the deadline")));
}

TEST(InprocWaits, AreWokenByAnAbortAndGoOnAfterAReset) {
  InprocTransport transport = make_inproc(2, 60, 0);
  const MessageKey key{MessageKind::kGradient, 0, 0, 0};
  std::thread other([&] { transport.abort(); });
  EXPECT_THAT(refusal([&] { transport.receive(0, 1, key); }), HasSubstr("another rank failed"));
  other.join();
  EXPECT_THAT(refusal([&] { transport.receive(0, 1, key); }), HasSubstr("another rank failed"));
  transport.reset();
  transport.send(0, key, {{torch::ones({2})}});
  EXPECT_TRUE(transport.receive(0, 1, key).tensors[0].equal(torch::ones({2})));
}

TEST(InprocWaits, DropWhatWasNotTakenAtAReset) {
  InprocTransport transport = make_inproc(2, 60, 0);
  const MessageKey key{MessageKind::kGradient, 0, 0, 0};
  transport.send(0, key, {{torch::ones({2})}});
  transport.reset();
  transport.send(0, key, {{torch::zeros({3})}});
  EXPECT_TRUE(transport.receive(0, 1, key).tensors[0].equal(torch::zeros({3})));
}

TEST(MessageKeys, ReadAsWords) {
  using K = MessageKind;
  EXPECT_EQ(to_text({K::kActivation, 1, 2, 0}), "activation of micro-batch 2 for stage 1");
  EXPECT_EQ(to_text({K::kSkipGradient, 0, 3, 1}), "skip gradient of micro-batch 3 for stage 0");
  EXPECT_EQ(to_text({K::kNumbers, 0, 3, 2}), "numbers of rank 2");
  EXPECT_EQ(to_text({K::kTiedValue, 4, 0, 2}), "value of a tied weight for stage 4");
}

}  // namespace
}  // namespace pipewright
