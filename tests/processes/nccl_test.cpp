// NCCL, which needs a GPU a process: what a machine with one GPU, or with none, can show. The rest
// of its way is the "ordered" transport of conformance_test.cpp, with Gloo in its place.

#include "pipewright/transport/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "pipewright/base/error.h"
#include "pipewright/train/grid.h"
#include "tests/processes/train_worker.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

bool can_run() { return has_nccl() && torch::cuda::is_available(); }

#define NEEDS_NCCL() \
  if (!can_run()) GTEST_SKIP() << "no NCCL in this build, or no GPU in this machine"

TEST(OwnGpus, ThatTwoRanksShareAreNamed) {
  EXPECT_EQ(shared_gpu_words({}), "");
  EXPECT_EQ(shared_gpu_words({"a of one", "b of one", "a of two"}), "");
  EXPECT_THAT(shared_gpu_words({"a of one", "b of one", "b of one"}),
              AllOf(HasSubstr("ranks 1 and 2 have the same GPU (b of one)"),
                    HasSubstr("NCCL needs one a rank"), HasSubstr("transport = \"gloo\"")));
}

const Worker kGpus("gpus", [](const Arguments& arguments) {
  World world(read_environment(), {.deadline = seconds(30), .start_deadline = seconds(50)});
  const std::string rank = std::to_string(world.place().rank);
  check_own_gpus(world, "first", "gpu " + rank, seconds(30));
  std::cerr << refusal([&] { check_own_gpus(world, "second", arguments.at(rank), seconds(30)); })
            << std::endl;
});

TEST(OwnGpus, AreComparedByAllProcesses) {
  Processes processes("gpus", 3, {{"0", "x"}, {"1", "y"}, {"2", "x"}});
  processes.expect_success();
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(processes.words(rank),
                HasSubstr("[transport] ranks 0 and 2 have the same GPU (x)"));
}

Arguments nccl_run(const std::string& device) {
  Arguments arguments = plain_run("1f1b");
  arguments["transport"] = "nccl";
  arguments["device"] = device;
  arguments["ranks"] = "1";
  return arguments;
}

TEST(Nccl, IsRefusedWithWordsByABuildWithoutIt) {
  if (has_nccl()) GTEST_SKIP() << "this build has it";
  EXPECT_THAT(refusal([] { train_as(nccl_run("cuda")); }),
              AllOf(HasSubstr("[trainer] transport = 'nccl'; this build has threads"),
                    HasSubstr("build it with ")));
  EXPECT_THAT(refusal([] { gpu_name(torch::kCUDA); }), HasSubstr("this build has no NCCL"));
  EXPECT_THAT(transports(), testing::Not(testing::Contains("nccl")));
}

TEST(Nccl, IsAmongTheTransportsOfABuildWithItAndWithGloo) {
  if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  EXPECT_THAT(transports(), testing::Contains("nccl"));
}

TEST(Nccl, IsRefusedBetweenCpus) {
  if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  Processes processes("train", 1, nccl_run("cpu"));
  EXPECT_EQ(processes.wait(0), 1);
  EXPECT_THAT(processes.words(0), HasSubstr("transport = 'nccl' and stage 0 is on cpu"));
}

TEST(OwnGpus, ThatAreNotThereAreRefused) {
  Arguments arguments = nccl_run("cuda");
  arguments["transport"] = "gloo";
  Processes processes("train", 1, arguments, {{"LOCAL_RANK", "63"}});
  EXPECT_EQ(processes.wait(0), 1);
  EXPECT_THAT(processes.words(0),
              AllOf(HasSubstr("devices = cuda is a GPU for each process of a machine"),
                    HasSubstr("this is number 63 of its machine (LOCAL_RANK)")));
}

const Worker kAlone("nccl_alone", [](const Arguments&) {
  World world(read_environment(), {.deadline = seconds(30), .start_deadline = seconds(50)});
  const torch::Device gpu(torch::kCUDA, 0);
  check_own_gpus(world, "gpus", gpu_of_machine(gpu), seconds(30));
  const auto group = make_nccl_group(world, "sums", 0, 1);
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const auto expected = torch::arange(1000, torch::device(gpu).dtype(dtype));
    std::vector<torch::Tensor> tensors = {expected.clone()};
    const auto work = group->allreduce(tensors);
    work->wait();
    if (!tensors[0].equal(expected)) throw std::runtime_error("the sum of one is another");
  }
});

TEST(Nccl, SumsOverOneProcess) {
  NEEDS_NCCL();
  Processes processes("nccl_alone", 1, {});
  processes.expect_success();
}

TEST(Nccl, TrainsOneProcessWithTheBitsOfAThread) {
  NEEDS_NCCL();
  Arguments arguments = nccl_run("cuda");
  arguments["features"] = "skips tied dropout";
  Processes processes("train", 1, arguments);
  processes.expect_success();
  if (testing::Test::HasFailure()) return;
  arguments["transport"] = "threads";
  const TrainResult expected = train_as(arguments);
  for (const auto& [name, tensor] : read_result(processes, 0))
    EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
}

TEST(Nccl, RefusesTwoProcessesOnOneGpuAtOnce) {
  NEEDS_NCCL();
  Arguments arguments = nccl_run("cuda:0");
  arguments["ranks"] = "2";
  Processes processes("train", 2, arguments);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(processes.wait(rank), 1);
    EXPECT_THAT(processes.words(rank), HasSubstr("ranks 0 and 1 have the same GPU"));
  }
}

}  // namespace
}  // namespace pipewright
