#include "pipewright/trace/chrome.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/trace/sample.h"

namespace pipewright {
namespace {

using nlohmann::json;

json events_of(const std::vector<Timeline>& timelines) {
  return json::parse(to_chrome_trace(timelines)).at("traceEvents");
}

std::map<std::string, int> count_phases(const json& events) {
  std::map<std::string, int> counts;
  for (const json& event : events) ++counts[event.at("ph").get<std::string>()];
  return counts;
}

TEST(ChromeTrace, HasAnEventASpanAndAPointOfMemory) {
  const Timeline gpipe = gpipe_timeline(4, 8);
  const json trace = json::parse(to_chrome_trace(std::vector{gpipe}));
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  auto counts = count_phases(trace.at("traceEvents"));
  EXPECT_EQ(counts["X"], 4 * 16);
  EXPECT_EQ(counts["C"], 4 * 17);
  EXPECT_EQ(counts["M"], 2 + 2 * 4);
}

TEST(ChromeTrace, NamesProcessesAndThreads) {
  const json events = events_of({gpipe_timeline(1, 1), chunked_timeline(2, 1)});
  std::vector<std::string> names;
  for (const json& event : events) {
    if (event["name"] == "process_name" || event["name"] == "thread_name") {
      names.push_back(event["args"]["name"]);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"gpipe", "rank 0", "chunks", "rank 0", "rank 1"}));
}

TEST(ChromeTrace, WritesMicrosecondsFromTheFirstStart) {
  Timeline timeline;
  timeline.ranks = {
      {make_span(Kind::kForward, 3, 100, 100.5, 7), make_span(Kind::kStep, -1, 101, 101.25)}};
  timeline.memory = {{{100.5, 4096}}};
  json events = events_of({timeline});
  events.erase(events.begin(), events.begin() + 4);
  EXPECT_EQ(events[0], json::parse(R"({"ph":"X","pid":0,"tid":0,"ts":0,"dur":500000,"name":"F3",
      "cat":"forward","args":{"stage":7,"micro_batch":3}})"));
  EXPECT_EQ(events[1]["name"], "STEP");
  EXPECT_EQ(events[1]["ts"], 1000000);
  EXPECT_EQ(events[2], json::parse(R"({"ph":"C","pid":0,"tid":0,"ts":500000,"name":"memory rank 0",
      "args":{"bytes":4096}})"));
}

TEST(ChromeTrace, IsValidForNoTimelines) {
  EXPECT_TRUE(events_of({}).empty());
  EXPECT_EQ(events_of({Timeline{}}).size(), 2U);
}

TEST(ChromeTrace, EscapesNames) {
  const std::string name = "a\"</script>\\\n\x01\xC3\xA9";
  EXPECT_EQ(events_of({named(name)})[0]["args"]["name"], name);
  EXPECT_NO_THROW(events_of({named("not UTF-8: \xff\xfe")}));
}

TEST(ChromeTrace, WritesOnlyFiniteNumbers) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Timeline timeline;
  timeline.ranks = {{make_span(Kind::kForward, 0, 0, 1e299), make_span(Kind::kForward, 1, 0, nan),
                     make_span(Kind::kForward, 2, 0, kInfinity),
                     make_span(Kind::kForward, 3, 2, 2)}};
  timeline.memory = {{{0, kInfinity}, {nan, nan}, {1e305, -kInfinity}}};
  const json events = events_of({timeline});
  auto counts = count_phases(events);
  EXPECT_EQ(counts["X"], 2);
  EXPECT_EQ(counts["C"], 3);
  for (const json& event : events) {
    if (event["ph"] != "M") {
      EXPECT_TRUE(event["ts"].is_number()) << event;
    }
  }
}

TEST(ChromeTrace, SaysTheVersionOfTheWeights) {
  std::vector<std::string> names;
  std::vector<int> versions;
  for (const json& event : events_of({asynchronous_timeline(2)})) {
    if (event["ph"] != "X" || event["tid"] != 0) continue;
    names.push_back(event["name"]);
    versions.push_back(event["args"]["version"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"F0@0", "F1@0", "B0@0", "STEP@1", "B1@0", "STEP@2"}));
  EXPECT_EQ(versions, (std::vector<int>{0, 0, 0, 1, 0, 2}));
  for (const json& event : events_of({gpipe_timeline(1, 1)})) {
    EXPECT_FALSE(event["args"].contains("version"));
  }
}

}  // namespace
}  // namespace pipewright
