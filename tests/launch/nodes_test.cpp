// Several launchers on one machine, each playing a node.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <thread>

#include "pipewright/launch/unique_fd.h"
#include "tests/launch/launcher.h"

namespace pipewright::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Options = std::vector<std::string>;

UniqueFd tcp_socket() { return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

/// Listens without ever answering.
UniqueFd listen_on(int port) {
  UniqueFd fd = tcp_socket();
  const sockaddr_in address = loopback(port);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(fd.get(), 8), 0);
  return fd;
}

/// Connects as soon as somebody listens.
UniqueFd connect_to(int port) {
  UniqueFd fd;
  const sockaddr_in address = loopback(port);
  eventually(
      [&] {
        fd = tcp_socket();
        return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
      },
      "somebody listens");
  return fd;
}

void send_text(const UniqueFd& fd, const std::string& text) {
  EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

std::string read_to_end(const UniqueFd& fd) {
  std::string text;
  std::array<char, 1024> buffer{};
  for (ssize_t size = 1; size > 0;) {
    size = recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (size > 0) text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return text;
}

bool says(const Launcher& launcher, const std::string& words) {
  return eventually([&] { return launcher.err().find(words) != std::string::npos; }, words);
}

class Nodes : public LaunchTest {
 protected:
  Options options(int node, int nnodes, const Options& more = {}, int local_ranks = 1) const {
    Options result = {"-n",          std::to_string(local_ranks),
                      "--nnodes",    std::to_string(nnodes),
                      "--node-rank", std::to_string(node),
                      "--master",    "127.0.0.1:" + std::to_string(port_),
                      "--log-dir",   "logs"};
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
  std::unique_ptr<Launcher> node(int node, int nnodes, const std::string& shell,
                                 const Options& more = {}, int local_ranks = 1) const {
    return std::make_unique<Launcher>(folder(), options(node, nnodes, more, local_ranks), shell);
  }

  const int port_ = some_free_port();
};

TEST_F(Nodes, RanksAreCountedOverNodesOfDifferentSizes) {
  const std::string shell =
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE; "
      "echo $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID > meet$RANK";
  auto third = node(2, 3, shell, {}, 1);
  auto second = node(1, 3, shell, {}, 3);
  auto first = node(0, 3, shell, {}, 2);
  EXPECT_EQ(first->wait().status, 0);
  EXPECT_EQ(second->wait().status, 0);
  EXPECT_EQ(third->wait().status, 0);
  EXPECT_EQ(text("logs/rank-0.log"), "0/6 0/2 0/3\n");
  EXPECT_EQ(text("logs/rank-1.log"), "1/6 1/2 0/3\n");
  EXPECT_EQ(text("logs/rank-4.log"), "4/6 2/3 1/3\n");
  EXPECT_EQ(text("logs/rank-5.log"), "5/6 0/1 2/3\n");
  EXPECT_EQ(first->out(), "0/6 0/2 0/3\n");
  EXPECT_EQ(second->out() + third->out(), "");
  EXPECT_THAT(text("meet0"), AllOf(HasSubstr("127.0.0.1:"), Not(HasSubstr(std::to_string(port_)))));
  for (const char* rank : {"meet1", "meet4", "meet5"}) EXPECT_EQ(text(rank), text("meet0"));
}

TEST_F(Nodes, AFailureIsNamedOnEveryNode) {
  const std::string shell = "[ $RANK = 2 ] || exec sleep 1000; echo oh no; kill -9 $$";
  auto first = node(0, 3, shell);
  auto second = node(1, 3, shell, {}, 2);
  auto third = node(2, 3, shell);
  for (Launcher* launcher : {first.get(), second.get(), third.get()}) {
    const auto result = launcher->wait();
    EXPECT_EQ(result.status, 137);
    EXPECT_THAT(result.err, HasSubstr("rank 2 (local rank 1 of node 1, "));
    EXPECT_THAT(result.err, HasSubstr(") was killed by signal 9 (SIGKILL)\n"));
  }
  EXPECT_THAT(first->err(), AllOf(HasSubstr("stopped: rank 0\n"), Not(HasSubstr("oh no"))));
  EXPECT_THAT(second->err(), AllOf(HasSubstr("stopped: rank 1\n"),
                                   HasSubstr("the last line of logs/rank-2.log:\n    oh no\n")));
  EXPECT_THAT(third->err(), HasSubstr("stopped: rank 3\n"));
}

TEST_F(Nodes, AllNodesRestartTogether) {
  const std::string shell =
      "echo $TORCHELASTIC_RESTART_COUNT $MASTER_PORT >> seen$RANK; "
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exit 5; exec sleep 1000";
  auto first = node(0, 2, shell, {"--max-restarts", "2"});
  auto second = node(1, 2, shell, {"--max-restarts", "2"});
  EXPECT_EQ(first->wait().status, 0);
  EXPECT_EQ(second->wait().status, 0);
  EXPECT_EQ(text("seen0"), text("seen1"));
  EXPECT_THAT(first->err(), HasSubstr("restart 1 of 2: rank 0 of 2 started"));
  EXPECT_THAT(second->err(), HasSubstr("restart 1 of 2: rank 1 of 2 started"));
}

TEST_F(Nodes, AProgramThatIsNotOnOneNodeEndsAll) {
  auto first = node(0, 2, "exec sleep 1000", {"--max-restarts", "3"});
  // The helper adds "-- /bin/sh -c ...": the first "--" counts.
  auto second = node(1, 2, "", {"--max-restarts", "3", "--", "/no/such/program"});
  EXPECT_EQ(first->wait().status, 127);
  EXPECT_EQ(second->wait().status, 127);
  for (const auto* launcher : {first.get(), second.get()})
    EXPECT_THAT(launcher->err(), HasSubstr("cannot run '/no/such/program': No such file"));
}

struct Mismatch {
  const char* name;
  int nodes_said;  // by the second launcher
  Options more;
  const char* words;
};

class Contradiction : public Nodes, public testing::WithParamInterface<Mismatch> {};

TEST_P(Contradiction, EndsEveryLauncherWithBothValues) {
  auto first = node(0, 3, "echo no");
  auto third = node(2, 3, "echo no");
  ASSERT_TRUE(says(*first, "node 2 ("));
  auto second = node(1, GetParam().nodes_said, "echo no", GetParam().more);
  const auto result = second->wait();
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr(GetParam().words));
  for (Launcher* launcher : {first.get(), third.get()}) {
    EXPECT_EQ(launcher->wait().status, 2);
    EXPECT_THAT(launcher->err(), HasSubstr(GetParam().words));
  }
  EXPECT_EQ(first->out() + second->out() + third->out(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Of, Contradiction,
    testing::Values(
        Mismatch{"nodes", 2, {"--deadline", "30"}, "was started with --nnodes 2, node 0 ("},
        Mismatch{
            "restarts", 3, {"--max-restarts", "4"}, "was started with --max-restarts 4, node 0 ("},
        Mismatch{"deadline", 3, {"--deadline", "31"}, "was started with --deadline 31, node 0 ("}),
    [](const auto& test) { return test.param.name; });

TEST_F(Nodes, TwoOfTheSameRankEndAllThatCame) {
  auto first = node(0, 3, "echo no");
  auto second = node(1, 3, "echo no");
  ASSERT_TRUE(says(*first, "has come"));
  auto other = node(1, 3, "echo no");
  for (Launcher* launcher : {first.get(), second.get(), other.get()}) {
    const auto result = launcher->wait();
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("two launchers have --node-rank 1: that of "));
  }
}

TEST_F(Nodes, AnotherProtocolVersionIsNamed) {
  auto first = node(0, 2, "echo no");
  UniqueFd fd = connect_to(port_);
  send_text(fd, "{\"type\":\"hello\",\"version\":99}\n");
  EXPECT_THAT(read_to_end(fd), HasSubstr("version 99"));
  fd.reset();
  EXPECT_EQ(first->wait().status, 2);
  EXPECT_THAT(first->err(), HasSubstr("speaks protocol version 99, that of node 0 version 1"));
}

TEST_F(Nodes, AMasterPortInUseIsToldAtOnce) {
  const UniqueFd taken = listen_on(port_);
  for (const int nnodes : {1, 2}) {
    const auto result = node(0, nnodes, "echo no")->wait();
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err,
                HasSubstr("[launch] cannot listen at 127.0.0.1:" + std::to_string(port_) +
                          ": Address already in use; another program listens there"));
  }
}

TEST_F(Nodes, AMasterThatIsAnotherMachinesCannotBeListenedAt) {
  const auto result = run(
      {"-n", "1", "--nnodes", "2", "--node-rank", "0", "--master", "192.0.2.1:29500"}, "echo no");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("it is no address of this machine; --master names node 0"));
}

TEST_F(Nodes, AMasterThatIsNotThereIsToldWithinTheDeadline) {
  const auto result = node(1, 2, "echo no", {"--deadline", "0.5"})->wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("[launch] cannot connect to node 0 at 127.0.0.1:"));
  EXPECT_THAT(result.err, HasSubstr(" within 500 ms: Connection refused; is its launcher running"));
}

TEST_F(Nodes, AMasterThatDoesNotAnswerIsToldWithinTheDeadline) {
  const UniqueFd silent = listen_on(port_);
  const auto result = node(1, 2, "echo no", {"--deadline", "0.5"})->wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("is lost: nothing was heard of it for 500 ms; the run ends"));
}

TEST_F(Nodes, AMasterThatIsNoLauncherIsTold) {
  const UniqueFd listener = listen_on(port_);
  auto second = node(1, 2, "echo no");
  const UniqueFd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  send_text(connection, "HTTP/1.1 400 Bad Request\r\n");
  EXPECT_EQ(second->wait().status, 1);
  EXPECT_THAT(second->err(), HasSubstr("is lost: it sent what is no message: "));
}

TEST_F(Nodes, AHostThatHasNoAddressIsTold) {
  const auto result = run({"-n", "1", "--nnodes", "2", "--node-rank", "1", "--deadline", "0.5",
                           "--master", "no-such-host.invalid:29500"},
                          "echo no");
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("cannot find the host 'no-such-host.invalid' of --master: "));
}

TEST_F(Nodes, NodesThatDoNotComeAreNamed) {
  const Options deadline = {"--deadline", "1"};
  auto first = node(0, 3, "echo no", deadline);
  ASSERT_TRUE(says(*first, "waits"));
  auto third = node(2, 3, "echo no", deadline);
  EXPECT_EQ(first->wait().status, 1);
  EXPECT_EQ(third->wait().status, 1);
  EXPECT_THAT(first->err(), HasSubstr("did not come to 127.0.0.1:"));
}

constexpr const char* kStay = "echo $$ > pid$RANK; exec sleep 1000";

TEST_F(Nodes, AVanishedNodeIsNamedAndEndsTheRun) {
  auto first = node(0, 3, kStay, {"--max-restarts", "3"});
  auto second = node(1, 3, kStay, {"--max-restarts", "3"});
  auto third = node(2, 3, kStay, {"--max-restarts", "3"});
  const std::vector<pid_t> ranks = {pid_in("pid0"), pid_in("pid1"), pid_in("pid2")};
  second->signal(SIGKILL);
  second->wait();
  for (Launcher* launcher : {first.get(), third.get()}) {
    const auto result = launcher->wait();
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr("[launch] node 1 ("));
    EXPECT_THAT(result.err, HasSubstr("is lost: "));
  }
  for (const pid_t rank : ranks)
    EXPECT_TRUE(eventually([&] { return !is_alive(rank); }, "rank ends"));
}

TEST_F(Nodes, TheOthersEndWhenNodeZeroVanishes) {
  auto first = node(0, 2, kStay);
  auto second = node(1, 2, kStay);
  const pid_t rank = pid_in("pid1");
  pid_in("pid0");
  first->signal(SIGKILL);
  first->wait();
  const auto result = second->wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("[launch] node 0 at 127.0.0.1:"));
  EXPECT_FALSE(is_alive(rank));
}

TEST_F(Nodes, ALauncherThatIsSuspendedCountsAsVanished) {
  const Options deadline = {"--deadline", "1"};
  auto first = node(0, 2, kStay, deadline);
  auto second = node(1, 2, kStay, deadline);
  const pid_t rank = pid_in("pid1");
  pid_in("pid0");
  second->signal(SIGSTOP);
  const auto result = first->wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("is lost: nothing was heard of it for 1 s; the run ends"));
  second->signal(SIGCONT);
  EXPECT_EQ(second->wait().status, 1);
  EXPECT_FALSE(is_alive(rank));
}

TEST_F(Nodes, AnInterruptOnOneNodeEndsAll) {
  for (const int interrupted : {0, 1}) {
    auto first = node(0, 2, kStay, {"--max-restarts", "3"});
    auto second = node(1, 2, kStay, {"--max-restarts", "3"});
    pid_in("pid0");
    pid_in("pid1");
    (interrupted == 0 ? first : second)->signal(SIGINT);
    EXPECT_EQ(first->wait().status, 130);
    EXPECT_EQ(second->wait().status, 130);
    EXPECT_THAT((interrupted == 0 ? second : first)->err(),
                HasSubstr("was interrupted (SIGINT)\n"));
    std::filesystem::remove(folder() / "pid0");
    std::filesystem::remove(folder() / "pid1");
  }
}

TEST_F(Nodes, AnInterruptWhileNodesAreWaitedForEndsAtOnce) {
  auto first = node(0, 2, kStay);
  ASSERT_TRUE(says(*first, "waits"));
  first->signal(SIGTERM);
  EXPECT_EQ(first->wait().status, 143);
  auto second = node(1, 2, kStay);
  ASSERT_TRUE(says(*second, "connects"));
  second->signal(SIGINT);
  EXPECT_EQ(second->wait().status, 130);
}

TEST_F(Nodes, GarbageOnTheControlPortIsRefusedAndTheRunGoesOn) {
  const std::string shell = "while [ ! -e go ]; do sleep 0.01; done; echo fine";
  auto first = node(0, 2, shell);
  const std::vector<std::string> garbage = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                            std::string(100'000, 'x'),
                                            "\n",
                                            "{}\n",
                                            "{\"type\":\"done\",\"attempt\":0}\n",
                                            "{\"type\":\"hello\",\"version\":1}\n",
                                            std::string("\0\xff\n", 3),
                                            "[[[[[[[[\n"};
  for (const std::string& text : garbage) {
    const UniqueFd fd = connect_to(port_);
    send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
    EXPECT_EQ(read_to_end(fd), "");
  }
  const UniqueFd silent = connect_to(port_);
  auto second = node(1, 2, shell);
  ASSERT_TRUE(says(*second, "started"));
  auto late = node(1, 2, shell);
  EXPECT_EQ(late->wait().status, 2);
  EXPECT_THAT(late->err(), HasSubstr("the run has begun with all of its nodes"));
  std::filesystem::create_directory(folder() / "go");
  EXPECT_EQ(first->wait().status, 0);
  EXPECT_EQ(second->wait().status, 0);
  EXPECT_THAT(first->err(), HasSubstr("refused a connection from 127.0.0.1:"));
  EXPECT_THAT(first->err(), HasSubstr("it sent what is no message: [control channel] "));
  EXPECT_THAT(first->err(), HasSubstr("it sent a line of more than "));
  EXPECT_THAT(first->err(), HasSubstr("it did not say who it is"));
}

}  // namespace
}  // namespace pipewright::launch
