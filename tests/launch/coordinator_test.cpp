// What node 0 decides, without sockets, processes or real time.

#include "pipewright/launch/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace pipewright::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// A coordinator whose time is told, and whose nodes have 2 ranks each.
class Decisions : public testing::Test {
 protected:
  static Hello hello(int node, int nnodes, int max_restarts = 0) {
    return {.nnodes = nnodes,
            .node_rank = node,
            .local_ranks = 2,
            .max_restarts = max_restarts,
            .deadline_seconds = 30,
            .host = "host" + std::to_string(node)};
  }

  void begin(int nnodes, int max_restarts = 0, int local_ranks = 2) {
    Hello own = hello(0, nnodes, max_restarts);
    own.local_ranks = local_ranks;
    coordinator_.emplace(Coordinator::Setup{.own = own,
                                            .master_addr = "master",
                                            .run_id = "id",
                                            .pick_port = [](int attempt) { return 1000 + attempt; },
                                            .where = "master:1"},
                         now_);
    for (int node = 1; node < nnodes; ++node)
      EXPECT_EQ(coordinator_->join(hello(node, nnodes, max_restarts), "address"), "");
  }

  void pass(double seconds) {
    now_ = after(now_, Seconds(seconds));
    coordinator_->tick(now_);
  }
  void tell(int node, const Message& message) { coordinator_->receive(node, message, now_); }
  void fail(int node, int local_rank, ExitStatus status, int attempt = 0) {
    tell(node, Failed{attempt, local_rank, status});
  }

  /// The orders since the last call that are of this kind, by node.
  template <typename Kind>
  std::map<int, Kind> orders() {
    std::map<int, Kind> result;
    for (const auto& [node, message] : coordinator_->take_orders()) {
      if (const auto* order = std::get_if<Kind>(&message)) result[node] = *order;
    }
    return result;
  }

  TimePoint now_{};
  std::optional<Coordinator> coordinator_;
};

TEST_F(Decisions, RanksAreCountedOverTheNodes) {
  begin(3);
  const auto starts = orders<Start>();
  ASSERT_EQ(starts.size(), 3U);
  for (const auto& [node, start] : starts) {
    EXPECT_EQ(start.first_rank, 2 * node);
    EXPECT_EQ(start.world_size, 6);
    EXPECT_EQ(start.master_addr, "master");
    EXPECT_EQ(start.master_port, 1000);
  }
}

TEST_F(Decisions, ItIsOverWhenAllNodesAreDone) {
  begin(2);
  tell(0, Done{0});
  EXPECT_FALSE(coordinator_->over());
  tell(1, Done{0});
  EXPECT_TRUE(coordinator_->over());
  EXPECT_EQ(orders<End>().at(1).status, 0);
}

TEST_F(Decisions, TheFirstFailureIsTheCause) {
  begin(2);
  fail(1, 1, {.code = 3});
  pass(0.1);
  fail(0, 0, {.code = 1});
  fail(0, 1, {.signal = SIGABRT});
  EXPECT_TRUE(orders<Stop>().empty());
  pass(1);
  const Stop stop = orders<Stop>().at(0);
  EXPECT_EQ(stop.rank, 3);
  EXPECT_EQ(stop.signal, SIGTERM);
  EXPECT_EQ(stop.reason,
            "rank 3 (local rank 1 of node 1, host1) exited with status 3; also failed: rank 0 "
            "exited with status 1, rank 1 was killed by signal 6 (SIGABRT)");
  tell(0, Stopped{0});
  EXPECT_TRUE(orders<End>().empty());
  tell(1, Stopped{0});
  EXPECT_EQ(orders<End>().at(0).status, 3);
}

TEST_F(Decisions, WhoDiedOfItselfAMomentLaterIsTheCause) {
  begin(1);
  fail(0, 0, {.code = 1});
  pass(0.1);
  fail(0, 1, {.signal = SIGKILL});
  pass(1);
  EXPECT_EQ(orders<Stop>().at(0).reason,
            "rank 1 was killed by signal 9 (SIGKILL); also failed: rank 0 exited with status 1");
  tell(0, Stopped{0});
  EXPECT_EQ(orders<End>().at(0).status, 137);
}

TEST_F(Decisions, ManyFailuresAreNotAllNamed) {
  begin(1, 0, 16);
  for (int i = 0; i < 11; ++i) fail(0, i, {.code = 1});
  fail(0, 0, {.code = 1});  // said twice, counted once
  pass(1);
  EXPECT_THAT(orders<Stop>().at(0).reason, HasSubstr(" and 2 more"));
}

TEST_F(Decisions, ARestartWaitsUntilAllHaveStoppedAndTakesAnotherPort) {
  begin(2, 1);
  orders<Start>();
  tell(1, Done{0});
  fail(0, 0, {.code = 1});
  pass(1);
  EXPECT_EQ(orders<Stop>().size(), 2U);
  tell(0, Stopped{0});
  EXPECT_TRUE(orders<Start>().empty());
  tell(1, Stopped{0});
  const auto starts = orders<Start>();
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts.at(1).attempt, 1);
  EXPECT_EQ(starts.at(1).master_port, 1001);
  tell(0, Done{1});
  EXPECT_FALSE(coordinator_->over()) << "node 1 was done in the first attempt, not in this one";
  fail(1, 0, {.code = 1}, 0);  // late news of the first attempt
  pass(1);
  tell(1, Done{1});
  EXPECT_EQ(orders<End>().at(0).status, 0);
}

TEST_F(Decisions, RestartsAreUsedUp) {
  begin(1, 1);
  fail(0, 0, {.code = 4});
  pass(1);
  tell(0, Stopped{0});
  fail(0, 0, {.code = 5}, 1);
  pass(1);
  EXPECT_THAT(orders<Stop>().at(0).reason, HasSubstr("; all 1 restarts are used up"));
  tell(0, Stopped{1});
  EXPECT_EQ(orders<End>().at(0).status, 5);
}

TEST_F(Decisions, WhatCannotStartIsNotStartedAgain) {
  begin(2, 5);
  tell(1, CannotStart{127, "cannot run 'x'"});
  EXPECT_EQ(orders<Stop>().at(0).reason, "node 1 (host1): cannot run 'x'");
  tell(0, Stopped{0});
  tell(1, Stopped{0});
  EXPECT_EQ(orders<End>().at(0).status, 127);
}

TEST_F(Decisions, AnInterruptStopsAllNodesWithItsSignal) {
  begin(2, 5);
  tell(1, Interrupted{SIGINT});
  const Stop stop = orders<Stop>().at(0);
  EXPECT_EQ(stop.signal, SIGINT);
  EXPECT_EQ(stop.reason, "node 1 (host1) was interrupted (SIGINT)");
  tell(1, Stopped{0});
  coordinator_->vanished(1, "its connection closed");  // it need not wait for the others
  tell(0, Stopped{0});
  EXPECT_EQ(orders<End>().at(0).status, 130);
}

TEST_F(Decisions, AnInterruptTakesTheRestartsPlace) {
  begin(1, 5);
  fail(0, 0, {.code = 1});
  pass(1);
  tell(0, Interrupted{SIGTERM});
  tell(0, Stopped{0});
  EXPECT_EQ(orders<End>().at(0).status, 143);
}

TEST_F(Decisions, AVanishedNodeEndsTheRunEvenWhereRestartsAreLeft) {
  begin(3, 5);
  fail(0, 0, {.code = 1});
  coordinator_->vanished(2, "its connection closed");
  EXPECT_THAT(orders<Stop>().at(1).reason,
              StartsWith("[launch] node 2 (host2) at address is lost: its connection closed"));
  tell(0, Stopped{0});
  tell(1, Stopped{0});
  const auto ends = orders<End>();
  EXPECT_EQ(ends.size(), 2U);
  EXPECT_EQ(ends.at(1).status, 1);
}

TEST_F(Decisions, ANodeThatBreaksTheProtocolIsLost) {
  begin(2);
  tell(1, End{0, ""});
  EXPECT_THAT(orders<Stop>().at(0).reason, HasSubstr("node 1 (host1)"));
  begin(2);
  fail(1, 2, {.code = 1});
  EXPECT_THAT(orders<Stop>().at(0).reason, HasSubstr("a failure that cannot be"));
}

TEST_F(Decisions, NodesThatDoNotComeAreNamed) {
  begin(1);
  coordinator_.emplace(Coordinator::Setup{.own = hello(0, 4),
                                          .master_addr = "master",
                                          .run_id = "id",
                                          .pick_port = [](int) { return 1; },
                                          .where = "master:1"},
                       now_);
  EXPECT_EQ(coordinator_->join(hello(2, 4), "address"), "");
  EXPECT_THAT(coordinator_->missing(), ElementsAre(1, 3));
  pass(29);
  EXPECT_FALSE(coordinator_->over());
  pass(1);
  const End end = orders<End>().at(2);
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.reason, HasSubstr("nodes 1, 3 of 4 did not come to master:1 within 30 s"));
}

TEST_F(Decisions, WhoComesWhenTheRunHasBegunIsRefusedAlone) {
  begin(2);
  EXPECT_THAT(coordinator_->join(hello(1, 2), "late"), HasSubstr("the run has begun"));
  EXPECT_FALSE(coordinator_->over());
}

}  // namespace
}  // namespace pipewright::launch
