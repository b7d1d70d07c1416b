// Ranks as processes: the conformance suite, and the ends of a wait.

#include "tests/transport/conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/transport/gloo.h"
#include "pipewright/transport/ordered_transport.h"
#include "pipewright/transport/shared_transport.h"
#include "tests/processes/worker.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr MessageKey kKey{MessageKind::kActivation, 1, 3, 0};

/// A group of a test's own.
c10::intrusive_ptr<compat::ProcessGroup> make_group(const World& world) {
  static int number = 0;
  return make_gloo_group(world, std::to_string(number++), world.place().rank, world.place().size,
                         seconds(60));
}

/// Over Gloo, through shared memory, or in the way of NCCL, with Gloo in its place: NCCL needs a
/// GPU a process.
std::unique_ptr<Transport> make_transport(World* world, const Arguments& arguments,
                                          double deadline_seconds = 60) {
  const ProcessPlace& place = world->place();
  std::vector<int> processes;
  for (int rank = 0; rank < place.size; ++rank) processes.push_back(rank);
  const std::vector<torch::Device> devices(kConformanceStages, torch::kCPU);
  const std::chrono::duration<double> deadline(deadline_seconds);
  auto group = make_group(*world);
  const auto gloo = [&] {
    return std::make_unique<ProcessTransport>(world, std::move(group), processes, place.rank,
                                              devices, deadline);
  };
  if (arguments.at("transport") == "gloo") return gloo();
  if (arguments.at("transport") == "shared") {
    static int number = 0;
    auto shared = std::make_unique<SharedTransport>(world, gloo(), processes, place.rank,
                                                    std::to_string(number++), deadline,
                                                    std::chrono::microseconds(10));
    expect_that(shared->num_shared() == place.size - 1, "all others share memory");
    return shared;
  }
  TensorGroups tensors;
  tensors.up = make_group(*world);
  tensors.down = make_group(*world);
  return std::make_unique<OrderedTransport>(world, std::move(group), std::move(tensors), processes,
                                            place.rank, torch::kCPU, devices, deadline);
}

WorldOptions patient() { return {.deadline = seconds(30), .start_deadline = seconds(50)}; }

void say(const std::string& words) { std::cerr << words << std::endl; }

const Worker kConform("conform", [](const Arguments& arguments) {
  World world(read_environment(), patient());
  for (const ConformanceCase& one : conformance_cases()) {
    if (arguments.contains("only") && arguments.at("only") != one.name) continue;
    const auto transport = make_transport(&world, arguments);
    try {
      one.body(*transport, world.place().rank, world.place().size);
    } catch (const std::exception& error) {
      throw std::runtime_error(one.name + ": " + error.what());
    }
    say(one.name);
  }
});

class ProcessConformance : public testing::TestWithParam<std::string> {
 protected:
  Arguments arguments_ = {{"transport", GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(Over, ProcessConformance, testing::Values("gloo", "shared", "ordered"),
                         [](const auto& test) { return test.param; });

TEST_P(ProcessConformance, EveryCaseHolds) {
  Processes processes("conform", kConformanceRanks, arguments_);
  processes.expect_success();
  for (const ConformanceCase& one : conformance_cases())
    EXPECT_THAT(processes.words(0), HasSubstr(one.name + "\n"));
}

const Worker kSilent("silent", [](const Arguments& arguments) {
  World world(read_environment(), patient());
  const auto transport = make_transport(&world, arguments, world.place().rank == 0 ? 0.5 : 60);
  say(refusal([&] { transport->receive(world.place().rank, 1 - world.place().rank, kKey); }));
});

TEST_P(ProcessConformance, WaitsEndAtTheDeadlineWithBothRanksAndTheMessageOnAllRanks) {
  Processes processes("silent", 2, arguments_);
  processes.expect_success();
  const std::string cause = "[transport] rank 1 did not send within 0.5 s; raise the deadline";
  const std::string message = "was waiting for the activation of micro-batch 3 for stage 1 from ";
  EXPECT_THAT(processes.words(0),
              AllOf(HasSubstr(cause), HasSubstr("rank 0 " + message + "rank 1")));
  EXPECT_THAT(processes.words(1),
              AllOf(HasSubstr(cause), HasSubstr("rank 1 " + message + "rank 0")));
}

const Worker kUntaken("untaken", [](const Arguments& arguments) {
  World world(read_environment(), patient());
  const auto transport = make_transport(&world, arguments, world.place().rank == 0 ? 0.5 : 60);
  if (world.place().rank == 0) transport->send(1, kKey, {{torch::ones({4})}});
  say(world.failure_or("none"));
  while (!world.failure()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  say(*world.failure());
});

/// Gloo alone: "ordered" takes what comes.
TEST(GlooWaits, OfSendsEndAtTheDeadlineToo) {
  Processes processes("untaken", 2, {{"transport", "gloo"}});
  processes.expect_success();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(processes.words(rank),
                AllOf(HasSubstr("rank 1 did not take what was sent to it within 0.5 s"),
                      HasSubstr("rank 0 was sending it the activation of micro-batch 3")));
  }
}

const Worker kAborted("aborted", [](const Arguments& arguments) {
  World world(read_environment(), patient());
  const auto transport = make_transport(&world, arguments);
  const auto wait = [&] { transport->receive(0, 1, kKey); };
  if (world.place().rank == 0) {
    std::thread other([&] { transport->abort(); });
    say(refusal(wait));
    other.join();
    say(refusal(wait));
    world.post("done", "yes");
  } else {
    world.wait_for_text("done", 0, seconds(30));
  }
});

TEST_P(ProcessConformance, WaitsAreWokenByAnAbort) {
  Processes processes("aborted", 2, arguments_);
  processes.expect_success();
  EXPECT_THAT(processes.words(0), HasSubstr("the step was given up because another rank failed"));
}

/// Waits for something that is no message, as one that saves does. Signs of life would tell in ten
/// minutes.
const Worker kBereft("bereft", [](const Arguments& arguments) {
  World world(read_environment(), {.deadline = seconds(600), .start_deadline = seconds(50)});
  const auto transport = make_transport(&world, arguments);
  world.post("there/" + std::to_string(world.place().rank), "yes");
  for (int rank = 0; rank < 3; ++rank)
    world.wait_for_text("there/" + std::to_string(rank), rank, seconds(30));
  if (world.place().rank == 1) ::raise(SIGKILL);
  say(refusal([&] { world.wait_for_text("never", 1, seconds(600)); }));
});

TEST_P(ProcessConformance, ALostProcessEndsWaitsOfEveryKindLongBeforeTheDeadline) {
  Processes processes("bereft", 3, arguments_);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(processes.wait(rank), 0);
    EXPECT_THAT(processes.words(rank), AllOf(HasSubstr("[transport] rank 1 was lost: "),
                                             HasSubstr("was waiting for 'never' of rank 1")));
  }
}

const Worker kRefused("refused", [](const Arguments& arguments) {
  World world(read_environment(), patient());
  const auto transport = make_transport(&world, arguments);
  if (world.place().rank == 0) {
    const auto send = [&](const MessageKey& key, const torch::Tensor& tensor) {
      say(refusal([&] { transport->send(1, key, {{tensor}}); }));
    };
    send(kKey, torch::eye(3).to_sparse());
    send(kKey, torch::quantize_per_tensor(torch::ones({4}), 0.1, 0, torch::kQInt8));
    send({MessageKind::kSkip, 1, 0, 32}, torch::ones({1}));
    send({MessageKind::kSkip, 512, 0, 0}, torch::ones({1}));
    send(kKey, torch::ones({2}));
  } else {
    expect_same(transport->receive(1, 0, kKey).tensors[0], torch::ones({2}), "the last");
  }
});

TEST_P(ProcessConformance, MessagesThatCannotTravelAreRefusedWithWords) {
  Processes processes("refused", 2, arguments_);
  processes.expect_success();
  EXPECT_THAT(processes.words(0),
              AllOf(HasSubstr("a sparse tensor cannot be sent to another process"),
                    HasSubstr("a quantized tensor cannot be sent to another process"),
                    HasSubstr("stage 1 and number 32 of the skip"),
                    HasSubstr("up to 512 stages, and up to 32 skips"), HasSubstr("stage 512")));
}

}  // namespace
}  // namespace pipewright
