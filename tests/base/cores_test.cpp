#include "pipewright/base/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Cores, AreSharedOutInOrder) {
  EXPECT_THAT(share_of_cores({0, 1, 2, 3}, 1, 2), ElementsAre(2, 3));
  EXPECT_THAT(share_of_cores({4, 6, 9}, 2, 3), ElementsAre(9));
  EXPECT_THAT(share_of_cores({4, 6, 9}, 1, 2), ElementsAre(6));  // as many for each
  EXPECT_THAT(share_of_cores({4, 6}, 0, 3), IsEmpty());
  EXPECT_THAT(share_of_cores({}, 0, 1), IsEmpty());
}

TEST(Cores, AThreadStaysOnThoseItIsGiven) {
  const auto all = usable_cores();
  ASSERT_FALSE(all.empty());
  std::vector<int> pinned, again;
  std::thread([&] {
    pin_thread({all.back()});
    pinned = usable_cores();
    pin_thread({});
    again = usable_cores();
  }).join();
  EXPECT_THAT(pinned, ElementsAre(all.back()));
  EXPECT_EQ(again, pinned);
  EXPECT_EQ(usable_cores(), all);
}

TEST(Cores, ALauncherNamesThose) {
  unsetenv(kCoresVariable);
  EXPECT_THAT(launched_cores(), IsEmpty());
  setenv(kCoresVariable, "", 1);
  EXPECT_THAT(launched_cores(), IsEmpty());
  setenv(kCoresVariable, "4,5", 1);
  EXPECT_THAT(launched_cores(), ElementsAre(4, 5));
  for (const char* wrong : {"4-5", "-1", "many", "1048576"}) {
    setenv(kCoresVariable, wrong, 1);
    EXPECT_THAT(refusal(launched_cores), HasSubstr("PIPEWRIGHT_CORES")) << wrong;
  }
  unsetenv(kCoresVariable);
}

}  // namespace
}  // namespace pipewright
