// How processes find each other, and what they say where they do not.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <optional>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "pipewright/transport/gloo.h"
#include "tests/processes/worker.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

World make_world(const Arguments& arguments) {
  const auto number = [&](const char* name, int otherwise) {
    return seconds(arguments.contains(name) ? std::stoi(arguments.at(name)) : otherwise);
  };
  return {read_environment(),
          {.deadline = number("life", 30), .start_deadline = number("start", 50)}};
}

void say(const std::string& words) { std::cerr << words << std::endl; }

/// Returns when all are there: each says a word and waits for the others'.
void meet(const World& world, const std::string& name) {
  const ProcessPlace& place = world.place();
  world.post(name + std::to_string(place.rank), "here");
  for (int rank = 0; rank < place.size; ++rank)
    world.wait_for_text(name + std::to_string(rank), rank, seconds(30));
}

const Worker kMeet("meet", [](const Arguments& arguments) {
  const World world = make_world(arguments);
  meet(world, "meet");
});

/// Waits for all, which must fail, and holds what each said against what was expected.
template <typename Matcher>
void expect_refusals(Processes& processes, int count, const Matcher& expected) {
  for (int rank = 0; rank < count; ++rank) {
    EXPECT_EQ(processes.wait(rank), 1) << "rank " << rank;
    EXPECT_THAT(processes.words(rank), expected) << "rank " << rank;
  }
}

TEST(Gather, NamesARankThatNeverComes) {
  Processes processes("meet", 2, {{"start", "4"}}, {{"WORLD_SIZE", "3"}});
  expect_refusals(processes, 2,
                  HasSubstr("waited 4 s for the processes to come; rank 2 did not; see why in"));
}

TEST(Gather, NamesNumbersOfProcessesThatDiffer) {
  Processes processes("meet", 2, {}, {}, {{1, {{"WORLD_SIZE", "3"}}}});
  expect_refusals(
      processes, 2,
      AnyOf(HasSubstr("rank 0 was started as one of 2 processes, rank 1 as one of 3; start "
                      "all with the same number"),
            HasSubstr("rank 1 was started as one of 3 processes, rank 0 as one of 2; "
                      "start all with the same number")));
}

TEST(Gather, NamesARankThatTwoProcessesHave) {
  Processes processes("meet", 3, {}, {}, {{2, {{"RANK", "1"}}}});
  expect_refusals(processes, 3,
                  HasSubstr("two processes were started as rank 1 (RANK) of 3; give each its own"));
}

/// Listens, accepts, and says nothing.
class DeafPort {
 public:
  DeafPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), length);
    ::listen(socket_, 8);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  ~DeafPort() { ::close(socket_); }
  DeafPort(const DeafPort&) = delete;
  DeafPort& operator=(const DeafPort&) = delete;
  DeafPort(DeafPort&&) = delete;
  DeafPort& operator=(DeafPort&&) = delete;
  std::string port() const { return std::to_string(port_); }

 private:
  int socket_;
  int port_ = 0;
};

TEST(Gather, NamesAPortThatIsInUse) {
  const DeafPort deaf;
  Processes processes("meet", 2, {{"start", "2"}}, {{"MASTER_PORT", deaf.port()}});
  EXPECT_EQ(processes.wait(0), 1);
  EXPECT_THAT(processes.words(0), AllOf(HasSubstr("rank 0 cannot keep the store at 127.0.0.1:" +
                                                  deaf.port() + " (MASTER_ADDR, MASTER_PORT)"),
                                        HasSubstr("in use")));
  EXPECT_EQ(processes.wait(1), 1);
  EXPECT_THAT(processes.words(1),
              AllOf(HasSubstr("rank 1 reached 127.0.0.1:" + deaf.port()),
                    HasSubstr("no store answered there within 2 s; is another program using")));
}

TEST(Gather, NamesAMasterThatDoesNotResolve) {
  Processes processes("meet", 2, {}, {{"MASTER_ADDR", "no-such-host.invalid"}});
  expect_refusals(processes, 2,
                  HasSubstr("there is no way to 'no-such-host.invalid' (MASTER_ADDR) from here"));
}

TEST(Gather, NamesAMasterThatDoesNotAnswer) {
  Processes refused("meet", 1, {{"start", "2"}}, {{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  expect_refusals(refused, 1,
                  AllOf(HasSubstr("rank 1 cannot reach the store of rank 0 at 127.0.0.1:"),
                        HasSubstr("(MASTER_ADDR, MASTER_PORT)")));
  Processes silent("meet", 1, {{"start", "2"}},
                   {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "192.0.2.1"}});
  expect_refusals(silent, 1, HasSubstr("192.0.2.1"));
}

const Worker kAgain("again", [](const Arguments& arguments) {
  for (int round = 0; round < 6; ++round) {
    const World world = make_world(arguments);
    // Each in turn is the last one to leave.
    if (world.place().rank == round % world.place().size) ::usleep(100000);
    meet(world, "round");
    const auto group =
        make_gloo_group(world, "g", world.place().rank, world.place().size, seconds(30));
    if (world.failure()) throw std::runtime_error(*world.failure());
  }
});

TEST(Worlds, MayFollowEachOther) {
  Processes processes("again", 3, {});
  processes.expect_success();
}

TEST(Worlds, MayUseAStoreThatTheLauncherKeeps) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  c10d::TCPStore store("127.0.0.1", options);
  Processes processes("again", 3, {},
                      {{"MASTER_PORT", std::to_string(store.getPort())},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                       {"TORCHELASTIC_RESTART_COUNT", "2"}});
  processes.expect_success();
}

/// Rank 1 fails before the ranks are connected.
const Worker kEarly("early", [](const Arguments& arguments) {
  const World world = make_world(arguments);
  const int rank = world.place().rank;
  if (rank == 1) throw std::runtime_error("no data here");
  make_gloo_group(world, "g", rank, world.place().size, seconds(60));
});

TEST(Worlds, TellWhoLeftByAnException) {
  Processes processes("early", 3, {});
  EXPECT_EQ(processes.wait(1), 1);
  EXPECT_THAT(processes.words(1), HasSubstr("no data here"));
  for (const int rank : {0, 2}) {
    EXPECT_EQ(processes.wait(rank), 1);
    EXPECT_THAT(processes.words(rank),
                HasSubstr("[transport] rank 1 left the run because of an exception in its program; "
                          "see its log"));
  }
}

/// Waits for what nobody says.
const Worker kEndless("endless", [](const Arguments& arguments) {
  const World world = make_world(arguments);
  meet(world, "meet");
  say("together");
  if (world.place().rank == 0) {
    while (!world.failure()) ::usleep(10000);
    throw std::runtime_error(*world.failure());
  }
  if (arguments.contains("connect"))
    make_gloo_group(world, "g", world.place().rank, world.place().size, seconds(60));
  world.wait_for_text("never", 0, seconds(60));
});

void wait_until_together(const Processes& processes, int count) {
  eventually(
      [&] {
        for (int rank = 0; rank < count; ++rank) {
          if (processes.words(rank).find("together") == std::string::npos) return false;
        }
        return true;
      },
      "all are together");
}

TEST(Worlds, NeverHangOnAStoreThatWasStopped) {
  for (const bool connect : {false, true}) {
    Processes processes(
        "endless", 3,
        connect ? Arguments{{"life", "2"}, {"connect", "1"}} : Arguments{{"life", "2"}});
    wait_until_together(processes, 3);
    processes.signal(0, SIGSTOP);
    for (const int rank : {1, 2}) {
      EXPECT_EQ(processes.wait(rank), 1);
      EXPECT_THAT(processes.words(rank),
                  HasSubstr("rank 0, which keeps the store, gave no sign of life for 2 s"));
    }
    processes.signal(0, SIGCONT);
    EXPECT_EQ(processes.wait(0), 1);
    EXPECT_THAT(processes.words(0), HasSubstr("rank 0 was itself stopped for "));
  }
}

/// Two processes that are together, and one more that comes as `rank` of theirs.
struct LateComer {
  explicit LateComer(const std::string& rank) {
    wait_until_together(first, 2);
    second.emplace("meet", 1, Arguments{},
                   Arguments{{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", first.port()}});
  }
  ~LateComer() {
    EXPECT_TRUE(first.runs(0));
    EXPECT_TRUE(first.runs(1));
  }
  LateComer(const LateComer&) = delete;
  LateComer& operator=(const LateComer&) = delete;
  LateComer(LateComer&&) = delete;
  LateComer& operator=(LateComer&&) = delete;

  Processes first{"endless", 2, {}, {}};
  std::optional<Processes> second;
};

TEST(Worlds, TurnAwayWhoComesLaterWithARankThatIsTaken) {
  LateComer late("1");
  EXPECT_EQ(late.second->wait(0), 1);
  EXPECT_THAT(late.second->words(0), HasSubstr("two processes were started as rank 1 (RANK) of 2"));
}

TEST(Worlds, TurnASecondKeeperOfTheStoreAway) {
  LateComer late("0");
  EXPECT_EQ(late.second->wait(0), 1);
  EXPECT_THAT(late.second->words(0),
              AllOf(HasSubstr("[transport] rank 0 cannot keep the store at 127.0.0.1"),
                    HasSubstr("in use")));
}

}  // namespace
}  // namespace pipewright
