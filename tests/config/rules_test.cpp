// Keys that do not go together.

#include "pipewright/config/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/config/sample.h"

namespace pipewright::config {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Case {
  const char* name;
  const char* added;
  const char* problem;  // without "run.toml:"
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

class Rule : public testing::TestWithParam<Case> {};

TEST_P(Rule, HasItsWords) {
  EXPECT_EQ(problem_of(GetParam().added), std::string("run.toml:") + GetParam().problem);
}

INSTANTIATE_TEST_SUITE_P(
    WithoutEffect, Rule,
    testing::Values(
        Case{"Every", "[recompute]\nmode = \"sqrt\"\nevery = 2",
             "10:9: recompute.every: 2 has no effect with recompute.mode = \"sqrt\"; set "
             "recompute.mode = \"every\" or leave it out"},
        Case{"Budget", "[recompute]\nbudget = \"8GiB\"",
             "9:10: recompute.budget: \"8GiB\" has no effect with recompute.mode = \"none\"; set "
             "recompute.mode = \"budget\" or leave it out"},
        Case{"Offload", "[recompute]\noffload = true",
             "9:11: recompute.offload: true has no effect with recompute.mode = \"none\"; set "
             "recompute.mode or leave it out"},
        Case{"Scale", "[amp]\ndtype = \"bf16\"\ninit_scale = 4",
             "10:14: amp.init_scale: 4.0 has no effect with amp.dtype = \"bf16\"; set amp.dtype = "
             "\"fp16\" or leave it out"},
        Case{"Average", "[gradient_merge]\naverage = false",
             "9:11: gradient_merge.average: false has no effect with gradient_merge.steps = 1; set "
             "gradient_merge.steps or leave it out"},
        Case{
            "Shard", "[data_parallel]\nshard_optimizer = true",
            "9:19: data_parallel.shard_optimizer: true has no effect with data_parallel.replicas = "
            "1; set data_parallel.replicas or leave it out"},
        Case{"Lanes", "[auto_micro_batch]\nlanes = 2",
             "9:9: auto_micro_batch.lanes: 2 has no effect with auto_micro_batch.num = 1; set "
             "auto_micro_batch.num or leave it out"},
        Case{"Momentum", "momentum = 0.9",
             "8:12: train.momentum: 0.9 has no effect with train.optimizer = \"adamw\"; set "
             "train.optimizer = \"sgd\" or \"rmsprop\" or leave it out"},
        Case{"EarlyStop", "early_stop = 3",
             "8:14: train.early_stop: 3 has no effect with train.validate_every = 0; set "
             "train.validate_every or leave it out"},
        Case{"KeepBest", "[checkpoint]\nkeep_best = false",
             "9:13: checkpoint.keep_best: false has no effect with train.validate_every = 0; set "
             "train.validate_every or leave it out"},
        Case{"Address", "[pipeline]\naddress = \"10.0.0.1\"",
             "9:11: pipeline.address: \"10.0.0.1\" has no effect with pipeline.transport = "
             "\"threads\"; set pipeline.transport = \"gloo\" or \"nccl\" or leave it out"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Asynchronous, Rule,
    testing::Values(
        Case{"VerticalSync", "[pipeline]\nvertical_sync = true",
             "9:17: pipeline.vertical_sync: true has no effect with pipeline.schedule = \"1f1b\"; "
             "set pipeline.schedule = \"pipedream\" or \"eager-pipedream\" or leave it out"},
        Case{"Clipping", "clip_norm = 0.5\n[pipeline]\nschedule = \"pipedream\"",
             "8:13: train.clip_norm: 0.5 with schedule = \"pipedream\", whose stages are updated "
             "one by one: there is no norm over all of them; write 0, or a synchronous schedule"},
        Case{"Half", "[pipeline]\nschedule = \"pipedream-2bw\"\n[amp]\ndtype = \"fp16\"",
             "11:9: amp.dtype: \"fp16\" with schedule = \"pipedream-2bw\", whose stages are "
             "updated one by one and cannot skip an update together; write \"bf16\""},
        Case{"LastMicroBatch",
             "[pipeline]\nschedule = \"pipedream\"\n[recompute]\nmode = \"except_last\"",
             "11:8: recompute.mode: \"except_last\" with schedule = \"pipedream\", which has no "
             "last micro-batch; write \"all\""},
        Case{"FewMicroBatches",
             "[pipeline]\nranks = 4\nmicro_batches = 3\nschedule = \"pipedream-2bw\"",
             "10:17: pipeline.micro_batches: 3 in each of 1 steps an update are fewer than the 4 "
             "that schedule = \"pipedream-2bw\" needs with ranks = 4; write 4 or more, or "
             "gradient_merge.steps"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Together, Rule,
    testing::Values(
        Case{"StepsAndEpochs", "epochs = 2",
             "8:10: train.epochs: 2 beside steps = 100; leave one of them out"},
        Case{"StepScheduleWithoutSteps", "schedule = \"step\"",
             "6:2: train.schedule_every: 0 with schedule = \"step\"; write how many updates lie "
             "between two steps of the rate"},
        Case{"WarmupIsAll", "schedule = \"cosine\"\nwarmup = 50\n[gradient_merge]\nsteps = 2",
             "9:10: train.warmup: 50 of the run's 50 updates leave none for schedule = \"cosine\"; "
             "write less, or more steps"},
        Case{
            "MoreSlicesThanSamples",
            "[pipeline]\nmicro_batches = 17\ntransport = \"gloo\"\n[data_parallel]\nreplicas = 2",
            "9:17: pipeline.micro_batches: 17 for each of 2 replicas are 34 slices of data.batch = "
            "32 samples; write less, or a larger batch"},
        Case{"Chunks", "[pipeline]\nchunks = 2",
             "9:10: pipeline.chunks: 2 with schedule = \"1f1b\"; write 1, or 0 for its usual"},
        Case{"TooManyChunks", "[pipeline]\nschedule = \"gpipe\"\nchunks = 65",
             "10:10: pipeline.chunks: 65 with schedule = \"gpipe\"; write 1 to 64, or 0 for its "
             "usual"},
        Case{
            "ManualWithoutSizes", "[pipeline]\npartition = \"manual\"",
            "8:2: pipeline.sizes: empty with partition = \"manual\"; write the number of layers of "
            "each stage"},
        Case{"OtherNumberOfSizes",
             "[pipeline]\nranks = 2\nschedule = \"interleaved-1f1b\"\npartition = "
             "\"manual\"\nsizes = [1, 2]",
             "12:9: pipeline.sizes: 2 sizes for ranks = 2 with 2 stages each; write 4 sizes"},
        Case{"Devices", "[pipeline]\nranks = 3\ndevices = [\"cuda:0\", \"cuda:1\"]",
             "10:11: pipeline.devices: 2 devices for ranks = 3; write one for all, or 3"},
        Case{"NcclWithoutDevices", "[pipeline]\ntransport = \"nccl\"",
             "9:13: pipeline.transport: \"nccl\" is between GPUs; write devices = [\"cuda:0\", "
             "...], or transport = \"gloo\""},
        Case{"NcclWithACpu",
             "[pipeline]\nranks = 2\ndevices = [\"cuda:0\", \"cpu\"]\ntransport = \"nccl\"",
             "11:13: pipeline.transport: \"nccl\" is between GPUs; write devices = [\"cuda:0\", "
             "...], or transport = \"gloo\""},
        Case{"ReplicasOfThreads", "[data_parallel]\nreplicas = 2",
             "9:12: data_parallel.replicas: 2 with pipeline.transport = \"threads\"; replicas are "
             "processes, set transport = \"gloo\" or \"nccl\""},
        Case{"BudgetOfNothing", "[recompute]\nmode = \"budget\"",
             "8:2: recompute.budget: 0 with mode = \"budget\"; write the bytes that a rank may "
             "take, "
             "\"8GiB\" say"},
        Case{"NamedWithoutNames", "[recompute]\nmode = \"named\"",
             "8:2: recompute.checkpoints: empty with mode = \"named\"; write the names of the "
             "layers "
             "whose inputs are held"},
        Case{"OffloadWithoutGpu", "[recompute]\nmode = \"all\"\noffload = true",
             "10:11: recompute.offload: true without a GPU; write pipeline.devices = [\"cuda:0\"], "
             "or false"},
        Case{
            "OffloadOfTheCpu",
            "[recompute]\nmode = \"all\"\noffload = true\n[pipeline]\nranks = 2\ndevices = "
            "[\"cuda:0\", \"cpu\"]",
            "10:11: recompute.offload: true, but some of pipeline.devices are the CPU, which keeps "
            "everything in the host's memory already; write GPUs alone, or false"},
        Case{"CopiesInAPipeline", "[auto_micro_batch]\nnum = \"auto\"\n[pipeline]\nranks = 2",
             "9:7: auto_micro_batch.num: \"auto\" beside pipeline.ranks = 2, micro_batches = 1; "
             "both "
             "split the batch, leave one of them out"},
        Case{"MoreLanesThanCopies", "[auto_micro_batch]\nnum = 2\nlanes = 3",
             "10:9: auto_micro_batch.lanes: 3 lanes for num = 2; write 2 or less"},
        Case{"MoreCopiesThanSamples", "[auto_micro_batch]\nnum = 33",
             "9:7: auto_micro_batch.num: 33 slices of data.batch = 32 samples; write less, or a "
             "larger batch"}),
    name_of);

TEST(Rules, AModelHasANameOrAFile) {
  EXPECT_THAT(
      problems_of("[model]\nname = \"gpt\"\nfile = \"m.pt\"\n[data]\nname = \"text\"\nbatch = "
                  "1\n[train]\nsteps = 1\n"),
      ElementsAre("run.toml:3:8: model.file: \"m.pt\" beside name = \"gpt\"; leave one of "
                  "them out"));
  EXPECT_THAT(
      problems_of("[model]\nname = \"\"\n[data]\nname = \"text\"\nbatch = 1\n[train]\nsteps "
                  "= 1\n"),
      ElementsAre("run.toml:2:8: model.name: not set; write the name of a model, or file = "
                  "\"model.pt\""));
  EXPECT_THAT(
      problems_of(
          "[model]\nfile = \"m.pt\"\n[data]\nname = \"text\"\nbatch = 1\n[train]\nsteps = 1\n"),
      IsEmpty());
}

TEST(Rules, AWrongKeyIsToldOnce) {
  // With the value that was meant the rules about it may hold.
  EXPECT_EQ(problem_of("[recompute]\nmode = \"evry\"\nevery = 2"),
            "run.toml:9:8: recompute.mode: there is no \"evry\"; did you mean \"every\"?");
  EXPECT_EQ(problem_of("[pipeline]\npartition = \"manual\"\nsizes = [\"a\"]"),
            "run.toml:10:10: pipeline.sizes[0]: \"a\" is a string; write a whole number from 1 to "
            "1048576");
  EXPECT_EQ(problem_of("schedule = \"cosine\"\nwarmup = -1"),
            "run.toml:9:10: train.warmup: -1 is out of range; write a whole number from 0 to "
            "1000000000000");
  EXPECT_EQ(problems_of("pipeline = 1\n" + least_config() + "[recompute]\nmode = \"all\"\n").size(),
            1U);
}

TEST(Rules, AKeyAtItsDefaultIsNoConflict) {
  EXPECT_EQ(problem_of("momentum = 0\n[recompute]\nevery = 1\nbudget = 0\noffload = false\n"
                       "[pipeline]\nsizes = []\n[checkpoint]\nkeep = 3"),
            "accepted");
}

TEST(Rules, WhatGoesTogetherIsAccepted) {
  EXPECT_EQ(
      problem_of("schedule = \"cosine\"\nwarmup = 49\nvalidate_every = 10\nearly_stop = 2\n"
                 "early_stop_margin = 0.1\n"
                 "[gradient_merge]\nsteps = 2\naverage = false\n"
                 "[pipeline]\nranks = 2\nmicro_batches = 16\nschedule = \"interleaved-1f1b\"\n"
                 "partition = \"manual\"\nsizes = [1, 2, 2, 1]\ntransport = \"nccl\"\n"
                 "devices = [\"cuda:0\", \"cuda:1\"]\naddress = \"10.0.0.1\"\n"
                 "[data_parallel]\nreplicas = 2\nshard_optimizer = true\n"
                 "[recompute]\nmode = \"budget\"\nbudget = \"8GiB\"\noffload = true\n"
                 "[amp]\ndtype = \"fp16\"\ninit_scale = 1024\n"
                 "[checkpoint]\nevery = 5\nkeep = 2\nkeep_best = false"),
      "accepted");
}

TEST(Rules, HoldForConfigsOfCodeToo) {
  Config config;
  config.model.name = "gpt";
  config.data.name = "text";
  config.data.batch = 4;
  config.train.steps = 1;
  EXPECT_THAT(conflicts(config, sample_known()), IsEmpty());
  config.pipeline.micro_batches = 5;
  config.data.name = "";
  EXPECT_THAT(conflicts(config, sample_known()),
              ElementsAre("data.name: not set; write one of \"text\", \"arrays\"",
                          "pipeline.micro_batches: 5 for each of 1 replicas are 5 slices of "
                          "data.batch = 4 samples; write less, or a larger batch"));
}

}  // namespace
}  // namespace pipewright::config
