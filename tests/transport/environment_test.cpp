// What a launcher says in the environment.

#include "pipewright/transport/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "pipewright/transport/local_address.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

constexpr const char* kAll[] = {"RANK",
                                "WORLD_SIZE",
                                "LOCAL_RANK",
                                "MASTER_ADDR",
                                "MASTER_PORT",
                                "OMPI_COMM_WORLD_RANK",
                                "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK",
                                "SLURM_PROCID",
                                "SLURM_NTASKS",
                                "SLURM_LOCALID",
                                "TORCHELASTIC_RESTART_COUNT",
                                "TORCHELASTIC_USE_AGENT_STORE"};

/// These variables and no others of a launcher, until the end of the test.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    for (const char* name : kAll) {
      const char* value = std::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  Environment(Environment&&) = delete;
  Environment& operator=(Environment&&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

ProcessPlace read(const Variables& variables) {
  const Environment environment(variables);
  return read_environment();
}

std::string refused(const Variables& variables) {
  return refusal([&] { read(variables); });
}

Variables launched() {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"MASTER_ADDR", "10.0.0.1"},
          {"MASTER_PORT", "29500"}};
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Environment, NothingSetIsAProcessOnItsOwn) {
  const ProcessPlace place = read({});
  EXPECT_FALSE(place.launched());
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.size, 1);
}

TEST(Environment, AMasterAloneIsNoLauncher) {
  EXPECT_FALSE(read({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}).launched());
}

TEST(Environment, LaunchAndTorchrunSetRankAndWorldSize) {
  const ProcessPlace place = read(launched());
  EXPECT_TRUE(place.launched());
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.master_address, "10.0.0.1");
  EXPECT_EQ(place.master_port, 29500);
  EXPECT_EQ(place.restart, 0);
  EXPECT_FALSE(place.store_runs);
}

TEST(Environment, TorchrunMayKeepTheStoreAndCountRestarts) {
  Variables variables = with(launched(), "TORCHELASTIC_USE_AGENT_STORE", "True");
  variables["TORCHELASTIC_RESTART_COUNT"] = "3";
  const ProcessPlace place = read(variables);
  EXPECT_TRUE(place.store_runs);
  EXPECT_EQ(place.restart, 3);
  EXPECT_FALSE(read(with(launched(), "TORCHELASTIC_USE_AGENT_STORE", "False")).store_runs);
}

TEST(Environment, MpirunsOwnVariablesDo) {
  const ProcessPlace place = read({{"OMPI_COMM_WORLD_RANK", "2"},
                                   {"OMPI_COMM_WORLD_SIZE", "3"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                   {"MASTER_ADDR", "node0"},
                                   {"MASTER_PORT", "1234"}});
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.size, 3);
  EXPECT_EQ(place.local_rank, 0);
  EXPECT_EQ(place.launched_by, "Open MPI");
}

TEST(Environment, SrunsOwnVariablesDo) {
  const ProcessPlace place = read({{"SLURM_PROCID", "5"},
                                   {"SLURM_NTASKS", "8"},
                                   {"SLURM_LOCALID", "1"},
                                   {"MASTER_ADDR", "node0"},
                                   {"MASTER_PORT", "1234"}});
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.launched_by, "Slurm");
}

TEST(Environment, RankComesBeforeMpirunsAndSruns) {
  Variables variables = with(launched(), "OMPI_COMM_WORLD_RANK", "3");
  variables["SLURM_PROCID"] = "2";
  EXPECT_EQ(read(variables).rank, 1);
}

TEST(Environment, TheRankOnTheMachineMayBeMissing) {
  EXPECT_EQ(read(without(launched(), "LOCAL_RANK")).local_rank, 0);
}

TEST(Environment, NamesTheVariableThatIsMissing) {
  for (const char* name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    const auto expected = AllOf(HasSubstr("[environment] RANK is set, as by pipewright launch"),
                                HasSubstr(std::string("but not ") + name));
    EXPECT_THAT(refused(without(launched(), name)), expected);
    EXPECT_THAT(refused(with(launched(), name, "")), expected);
  }
  EXPECT_THAT(refused({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}),
              AllOf(HasSubstr("SLURM_PROCID is set, as by Slurm, but not MASTER_ADDR"),
                    HasSubstr("or set it")));
  EXPECT_THAT(refused({{"OMPI_COMM_WORLD_RANK", "0"}}), HasSubstr("not OMPI_COMM_WORLD_SIZE"));
}

TEST(Environment, NamesTheVariableThatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"RANK", "-1"},          {"WORLD_SIZE", "0"},
      {"WORLD_SIZE", "four"},  {"LOCAL_RANK", "x"},
      {"MASTER_PORT", "0"},    {"MASTER_PORT", "65536"},
      {"MASTER_PORT", "http"}, {"TORCHELASTIC_RESTART_COUNT", "-2"}};
  for (const auto& [name, value] : wrong) {
    EXPECT_THAT(refused(with(launched(), name, value)), AllOf(HasSubstr(name), HasSubstr(value)));
  }
  for (const char* port : {"0", "65536", "29500x", " 1"})
    EXPECT_THAT(refused(with(launched(), "MASTER_PORT", port)), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(refused(with(launched(), "RANK", "4")),
              HasSubstr("RANK = 4 is not below WORLD_SIZE = 4"));
}

TEST(LocalAddress, IsLoopbackForALoopbackHost) {
  EXPECT_EQ(local_address("127.0.0.1"), "127.0.0.1");
  EXPECT_THAT(local_address("localhost"), testing::AnyOf("127.0.0.1", "::1"));
}

TEST(LocalAddress, NamesAHostThatHasNone) {
  EXPECT_THAT(
      refusal([] { local_address("no-such-host.invalid"); }),
      AllOf(HasSubstr("[transport] there is no way to 'no-such-host.invalid' (MASTER_ADDR)"),
            HasSubstr("from here: ")));
  EXPECT_THAT(refusal([] { local_address("300.1.1.1"); }), HasSubstr("300.1.1.1"));
}

}  // namespace
}  // namespace pipewright
