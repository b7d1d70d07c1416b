// Ranks as processes over Gloo: the conformance suite, and the ends of a wait.

#include "tests/transport/conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/transport/gloo.h"
#include "pipewright/transport/process_transport.h"
#include "tests/processes/worker.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr MessageKey kKey{MessageKind::kActivation, 1, 3, 0};

/// The transport of a test, over a group of its own.
struct Gloo {
  explicit Gloo(World* world, double deadline_seconds = 60)
      : transport(world, group(*world), all(world->place().size), world->place().rank,
                  std::vector<torch::Device>(kConformanceStages, torch::kCPU),
                  std::chrono::duration<double>(deadline_seconds)) {}

  static c10::intrusive_ptr<compat::ProcessGroup> group(const World& world) {
    static int number = 0;
    return make_gloo_group(world, std::to_string(number++), world.place().rank, world.place().size,
                           seconds(60));
  }
  static std::vector<int> all(int size) {
    std::vector<int> processes;
    for (int rank = 0; rank < size; ++rank) processes.push_back(rank);
    return processes;
  }

  ProcessTransport transport;
};

WorldOptions patient() { return {.deadline = seconds(30), .start_deadline = seconds(50)}; }

void say(const std::string& words) { std::cerr << words << std::endl; }

const Worker kConform("conform", [](const Arguments& arguments) {
  World world(read_environment(), patient());
  for (const ConformanceCase& one : conformance_cases()) {
    if (arguments.contains("only") && arguments.at("only") != one.name) continue;
    Gloo gloo(&world);
    try {
      one.body(gloo.transport, world.place().rank, world.place().size);
    } catch (const std::exception& error) {
      throw std::runtime_error(one.name + ": " + error.what());
    }
    say(one.name);
  }
});

TEST(GlooConformance, EveryCaseHolds) {
  Processes processes("conform", kConformanceRanks, {});
  processes.expect_success();
  for (const ConformanceCase& one : conformance_cases())
    EXPECT_THAT(processes.words(0), HasSubstr(one.name + "\n"));
}

const Worker kSilent("silent", [](const Arguments&) {
  World world(read_environment(), patient());
  Gloo gloo(&world, world.place().rank == 0 ? 0.5 : 60);
  say(refusal([&] { gloo.transport.receive(world.place().rank, 1 - world.place().rank, kKey); }));
});

TEST(GlooWaits, EndAtTheDeadlineWithBothRanksAndTheMessageOnAllRanks) {
  Processes processes("silent", 2, {});
  processes.expect_success();
  const std::string cause = "[transport] rank 1 did not send within 0.5 s; raise the deadline";
  const std::string message = "was waiting for the activation of micro-batch 3 for stage 1 from ";
  EXPECT_THAT(processes.words(0),
              AllOf(HasSubstr(cause), HasSubstr("rank 0 " + message + "rank 1")));
  EXPECT_THAT(processes.words(1),
              AllOf(HasSubstr(cause), HasSubstr("rank 1 " + message + "rank 0")));
}

const Worker kUntaken("untaken", [](const Arguments&) {
  World world(read_environment(), patient());
  Gloo gloo(&world, world.place().rank == 0 ? 0.5 : 60);
  if (world.place().rank == 0) gloo.transport.send(1, kKey, {{torch::ones({4})}});
  say(world.failure_or("none"));
  while (!world.failure()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  say(*world.failure());
});

TEST(GlooWaits, OfSendsEndAtTheDeadlineToo) {
  Processes processes("untaken", 2, {});
  processes.expect_success();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(processes.words(rank),
                AllOf(HasSubstr("rank 1 did not take what was sent to it within 0.5 s"),
                      HasSubstr("rank 0 was sending it the activation of micro-batch 3")));
  }
}

const Worker kAborted("aborted", [](const Arguments&) {
  World world(read_environment(), patient());
  Gloo gloo(&world);
  const auto wait = [&] { gloo.transport.receive(0, 1, kKey); };
  if (world.place().rank == 0) {
    std::thread other([&] { gloo.transport.abort(); });
    say(refusal(wait));
    other.join();
    say(refusal(wait));
    world.post("done", "yes");
  } else {
    world.wait_for_text("done", 0, seconds(30));
  }
});

TEST(GlooWaits, AreWokenByAnAbort) {
  Processes processes("aborted", 2, {});
  processes.expect_success();
  EXPECT_THAT(processes.words(0), HasSubstr("the step was given up because another rank failed"));
}

const Worker kRefused("refused", [](const Arguments&) {
  World world(read_environment(), patient());
  Gloo gloo(&world);
  if (world.place().rank == 0) {
    Transport& t = gloo.transport;
    const auto send = [&](const MessageKey& key, const torch::Tensor& tensor) {
      say(refusal([&] { t.send(1, key, {{tensor}}); }));
    };
    send(kKey, torch::eye(3).to_sparse());
    send(kKey, torch::quantize_per_tensor(torch::ones({4}), 0.1, 0, torch::kQInt8));
    send({MessageKind::kSkip, 1, 0, 32}, torch::ones({1}));
    send({MessageKind::kSkip, 512, 0, 0}, torch::ones({1}));
    send(kKey, torch::ones({2}));
  } else {
    expect_same(gloo.transport.receive(1, 0, kKey).tensors[0], torch::ones({2}), "the last");
  }
});

TEST(GlooMessages, ThatCannotTravelAreRefusedWithWords) {
  Processes processes("refused", 2, {});
  processes.expect_success();
  EXPECT_THAT(processes.words(0),
              AllOf(HasSubstr("a sparse tensor cannot be sent to another process"),
                    HasSubstr("a quantized tensor cannot be sent to another process"),
                    HasSubstr("stage 1 and number 32 of the skip"),
                    HasSubstr("up to 512 stages, and up to 32 skips"), HasSubstr("stage 512")));
}

}  // namespace
}  // namespace pipewright
