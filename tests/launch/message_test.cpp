#include "pipewright/launch/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/refusal.h"

namespace pipewright::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<Message> one_of_each() {
  return {Hello{.nnodes = 3,
                .node_rank = 2,
                .local_ranks = 4,
                .max_restarts = 5,
                .deadline_seconds = 1.5,
                .host = "h\"\\\xc3\xa9"},
          Start{.attempt = 1,
                .first_rank = 2,
                .world_size = 3,
                .master_addr = "10.0.0.1",
                .master_port = 4,
                .run_id = "id"},
          Failed{.attempt = 1, .local_rank = 2, .status = {.code = 0, .signal = 9}},
          Done{1},
          Stop{.attempt = 1, .signal = 15, .rank = -1, .reason = "why"},
          Stopped{2},
          CannotStart{127, "no such program"},
          Interrupted{2},
          End{3, ""},
          Ping{}};
}

std::string line_of(const Message& message) {
  std::string line = encode(message);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  line.pop_back();
  return line;
}

TEST(Message, ReadsAsItWasWritten) {
  for (const Message& message : one_of_each()) {
    const Message read = decode(line_of(message));
    EXPECT_EQ(read.index(), message.index());
    EXPECT_EQ(encode(read), encode(message));
  }
}

TEST(Message, GarbageIsRefusedInWords) {
  for (const char* line :
       {"", "GET / HTTP/1.1", "{", "[]", "1", "null", "{}", R"({"type":1})", R"({"type":"no"})",
        R"({"type":"hello"})", R"({"type":"done"})", R"({"type":"done","attempt":-1})",
        R"({"type":"done","attempt":1.5})", R"({"type":"done","attempt":1e99})",
        R"({"type":"done","attempt":"1"})",
        R"({"type":"failed","attempt":0,"local_rank":4096,"code":0,"signal":0})",
        R"({"type":"stop","attempt":0,"signal":0,"rank":-1,"reason":""})",
        R"({"type":"stop","attempt":0,"signal":15,"rank":-1,"reason":"","more":1})"}) {
    EXPECT_THAT(refusal([&] { decode(line); }), HasSubstr("[control channel] ")) << line;
  }
  EXPECT_NE(refusal([] { decode(std::string(10000, '[')); }), "accepted");
}

TEST(Message, OfAnotherVersionOnlyTheVersionIsRead) {
  const Message message = decode(R"({"type":"hello","version":7,"who":"knows"})");
  EXPECT_EQ(std::get<Hello>(message).version, 7);
}

TEST(Message, TextsCannotDriveATerminal) {
  const Message message = decode(R"({"type":"end","status":1,"reason":"a\u001b[2Jb\nc"})");
  EXPECT_EQ(std::get<End>(message).reason, "a?[2Jb?c");
}

TEST(Message, LongReasonsStillFitALine) {
  for (const char* piece : {"x", "\"", "\x01", "\xff", "\xf0\x9f\x98\x80"}) {
    std::string reason;
    while (reason.size() < 100'000) reason += piece;
    const std::string line = line_of(End{1, reason});
    EXPECT_LE(line.size(), kMostLineBytes);
    EXPECT_NO_THROW(decode(line));
  }
}

TEST(Message, ThousandsOfDamagedLinesAreReadOrRefused) {
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto all = one_of_each();
    std::string line = line_of(all[random() % all.size()]);
    for (unsigned n = random() % 4; n > 0; --n)
      line[random() % line.size()] = static_cast<char>(random());
    if (random() % 4 == 0) line.resize(random() % line.size());
    const std::string answer = refusal([&] { decode(line); });
    if (answer == "accepted") continue;
    ++refused;
    EXPECT_THAT(answer, HasSubstr("[control channel] "));
    EXPECT_THAT(answer, Not(HasSubstr("internal")));
  }
  EXPECT_GT(refused, 5'000);
}

}  // namespace
}  // namespace pipewright::launch
