#include "pipewright/launch/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/launch/exit_status.h"
#include "tests/refusal.h"

namespace pipewright::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Endpoint, HasAHostAndAPort) {
  for (const char* text : {"node0:29500", "10.0.0.1:1", "[fd00::1]:65535"})
    EXPECT_EQ(parse_endpoint(text).text(), text);
  EXPECT_EQ(parse_endpoint("[::1]:29500").host, "::1");
}

TEST(Endpoint, AnythingElseIsRefused) {
  for (const char* text :
       {"", "node0", ":29500", "::1:29500", "[]:1", "a b:1", "http://a:1", "[a:1"})
    EXPECT_THAT(refusal([&] { parse_endpoint(text); }), HasSubstr("is not HOST:PORT")) << text;
  for (const char* text : {"node0:", "node0:0", "node0:65536", "node0:-1", "node0:x", "node0:1x"})
    EXPECT_THAT(refusal([&] { parse_endpoint(text); }), HasSubstr("[--master] ")) << text;
}

TEST(Devices, AreDistinctNumbers) {
  EXPECT_THAT(parse_devices("0"), ElementsAre(0));
  EXPECT_THAT(parse_devices("3,0,12"), ElementsAre(3, 0, 12));
  for (const char* text : {"", ",", "0,", "0,,1", "a", "0,b", "-1", "cuda:0", "0-3", "0 1"})
    EXPECT_THAT(refusal([&] { parse_devices(text); }), HasSubstr("[--devices] ")) << text;
  EXPECT_EQ(refusal([] { parse_devices("0,1,0"); }),
            "[--devices] '0,1,0' names device 0 twice; name each once");
}

TEST(ExitStatus, SaysHowAProcessEnded) {
  EXPECT_EQ((ExitStatus{.code = 3}).words(), "exited with status 3");
  EXPECT_EQ((ExitStatus{.signal = 9}).words(), "was killed by signal 9 (SIGKILL)");
  EXPECT_EQ((ExitStatus{.signal = 40}).words(), "was killed by signal 40 (signal 40)");
  EXPECT_EQ((ExitStatus{.signal = 15}).shell_status(), 143);
  EXPECT_FALSE(ExitStatus{}.failed());
}

}  // namespace
}  // namespace pipewright::launch
