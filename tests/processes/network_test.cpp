// A network that is cut: needs two network namespaces, which not everybody may make.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/processes/train_on.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Two networks with a wire between them, 10.213.77.1 and 10.213.77.2; gone at the end.
class TwoNetworks {
 public:
  TwoNetworks() {
    made_ = run("ip netns add {a}") && run("ip netns add {b}") &&
            run("ip -n {a} link add wire type veth peer name wire netns {b}") &&
            run("ip -n {a} addr add 10.213.77.1/24 dev wire") &&
            run("ip -n {b} addr add 10.213.77.2/24 dev wire") && run("ip -n {a} link set lo up") &&
            run("ip -n {b} link set lo up") && run("ip -n {a} link set wire up") &&
            run("ip -n {b} link set wire up");
  }
  ~TwoNetworks() {
    run("ip netns del {a}");
    run("ip netns del {b}");
  }
  TwoNetworks(const TwoNetworks&) = delete;
  TwoNetworks& operator=(const TwoNetworks&) = delete;
  TwoNetworks(TwoNetworks&&) = delete;
  TwoNetworks& operator=(TwoNetworks&&) = delete;

  /// Whether this machine lets us make networks at all. Without ip it is not known: then the test
  /// fails, for tools/packages.txt has it.
  bool allowed() const {
    if (!run("unshare --net --mount true")) return false;
    return !run("command -v ip") || run("unshare --net ip link add wire type veth");
  }
  bool made() const { return made_; }
  void cut() const { EXPECT_TRUE(run("ip -n {b} link set wire down")); }
  std::vector<std::string> inside(bool first) const {
    return {"ip", "netns", "exec", first ? a_ : b_};
  }

 private:
  bool run(const std::string& command) const {
    const std::string quiet = command + " >/dev/null 2>&1";
    // NOLINTNEXTLINE(cert-env33-c): the words are our own
    return std::system(
               fmt::format(fmt::runtime(quiet), fmt::arg("a", a_), fmt::arg("b", b_)).c_str()) == 0;
  }

  std::string a_ = fmt::format("pipewright-{}-a", ::getpid());
  std::string b_ = fmt::format("pipewright-{}-b", ::getpid());
  bool made_ = false;
};

TEST(Network, ThatIsCutIsReportedOnBothSides) {
  const TwoNetworks networks;
  if (!networks.allowed()) GTEST_SKIP() << "this machine does not let us make networks";
  ASSERT_TRUE(networks.made()) << "networks are allowed here, but ip (iproute2) does not make them";
  Processes processes(
      kTrainOn, 3, {{"life", "3"}}, {{"MASTER_ADDR", "10.213.77.1"}},
      {{2, {{"PIPEWRIGHT_TEST_ARG_address", "10.213.77.2"}}}},
      {{0, networks.inside(true)}, {1, networks.inside(true)}, {2, networks.inside(false)}});
  wait_for_training(processes, 3);
  networks.cut();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.wait(rank), 1);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(error_of(processes, rank),
                AllOf(HasSubstr("[transport] rank 2 gave no sign of life for 3 s; "),
                      HasSubstr(fmt::format("rank {} was waiting for the ", rank))));
  }
  EXPECT_THAT(error_of(processes, 2),
              HasSubstr("[transport] rank 0, which keeps the store, gave no sign of life for 3 s; "
                        "rank 2 was waiting for the "));
}

}  // namespace
}  // namespace pipewright
