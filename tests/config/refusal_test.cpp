// What is answered to a config that is wrong, word by word.

#include "tests/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/config/sample.h"

namespace pipewright::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(Refusal, AllIsToldAtOnceInTheOrderOfTheFile) {
  const std::string text =
      "sed = 3\n"
      "[pipeline]\n"
      "ranks = 0\n"
      "shedule = \"gpipe\"\n"
      "devices = [\"cpu\", \"gpu\"]\n"
      "[model]\n"
      "name = \"gpt\"\n"
      "layer = 3\n"
      "[recompute]\n"
      "mode = \"all\"\n"
      "every = 2\n"
      "[trian]\n"
      "steps = 1\n"
      "[data]\n"
      "name = \"txt\"\n";
  EXPECT_EQ(refusal([&] { read_text(text, "run.toml", {"amp.growth=0"}, sample_known()); }),
            "[config] run.toml has 11 problems:\n"
            "run.toml:1:1: sed: unknown key; did you mean seed?\n"
            "run.toml:1:1: train.steps: neither steps nor epochs is set; write one of them, 1 or "
            "more\n"
            "run.toml:3:9: pipeline.ranks: 0 is out of range; write a whole number from 1 to "
            "1048576\n"
            "run.toml:4:1: pipeline.shedule: unknown key; did you mean schedule?\n"
            "run.toml:5:19: pipeline.devices[1]: \"gpu\" is no device; write \"cpu\" or "
            "\"cuda:0\"\n"
            "run.toml:8:1: model.layer: unknown key; did you mean layers?\n"
            "run.toml:11:9: recompute.every: 2 has no effect with recompute.mode = \"all\"; set "
            "recompute.mode = \"every\" or leave it out\n"
            "run.toml:12:2: trian: unknown section; did you mean train?\n"
            "run.toml:14:2: data.batch: not set; write a whole number from 1 to 1000000000000\n"
            "run.toml:15:8: data.name: there is no \"txt\"; did you mean \"text\"?\n"
            "--set amp.growth=0: amp.growth: 0 is out of range; write a number, 1 or more");
}

TEST(Refusal, AnEmptyFileSaysWhatIsNeeded) {
  EXPECT_THAT(
      problems_of(""),
      ElementsAre(
          "run.toml:1:1: data.name: not set; write one of \"text\", \"arrays\"",
          "run.toml:1:1: data.batch: not set; write a whole number from 1 to 1000000000000",
          "run.toml:1:1: model.name: not set; write the name of a model, or file = \"model.pt\"",
          "run.toml:1:1: train.steps: neither steps nor epochs is set; write one of them, 1 or "
          "more"));
}

struct Case {
  const char* name;
  const char* added;
  const char* problem;  // without "run.toml:"
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class Refusals : public testing::TestWithParam<Case> {};

TEST_P(Refusals, HaveTheirWords) {
  EXPECT_EQ(problem_of(GetParam().added), std::string("run.toml:") + GetParam().problem);
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    UnknownKeys, Refusals,
    testing::Values(
        Case{"Near", "[pipeline]\nmicrobatches = 2",
             "9:1: pipeline.microbatches: unknown key; did you mean micro_batches?"},
        Case{"OtherSection", "[pipeline]\nlr = 0.1",
             "9:1: pipeline.lr: unknown key; it belongs to [train]"},
        Case{"AboveAllSections", "[log]\nseed = 3",
             "9:1: log.seed: unknown key; it belongs above all sections"},
        Case{"FarFromAll", "[gradient_merge]\nquux = 3",
             "9:1: gradient_merge.quux: unknown key; [gradient_merge] has steps, average"},
        Case{"OddName", "[gradient_merge]\n\"a b\\n\" = 3",
             "9:1: gradient_merge.\"a b\\n\": unknown key; [gradient_merge] has steps, average"},
        Case{"Section", "[ampp]\n", "8:2: ampp: unknown section; did you mean amp?"},
        Case{"SectionFarFromAll", "[quux]\n",
             "8:2: quux: unknown section; there are model, data, train, pipeline, recompute, "
             "gradient_merge, amp, data_parallel, auto_micro_batch, checkpoint, log"},
        Case{"Parameter", "[data.x]\ny = 1",
             "8:7: data.x: unknown key; [data] has name, path, validation_path, batch, shuffle, "
             "workers, prefetch, seq"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    WrongTypes, Refusals,
    testing::Values(
        Case{"StringForInteger", "[pipeline]\nranks = \"two\"",
             "9:9: pipeline.ranks: \"two\" is a string; write a whole number from 1 to 1048576"},
        Case{"FractionForInteger", "[pipeline]\nranks = 2.5",
             "9:9: pipeline.ranks: 2.5 is a number with a fraction; write a whole number from 1 to "
             "1048576"},
        Case{"WholeFractionForInteger", "[pipeline]\nranks = 2e1",
             "9:9: pipeline.ranks: 20.0 is written with a fraction; write 20"},
        Case{"BooleanForNumber", "lr = true",
             "8:6: train.lr: true is a boolean; write a number, 0 or more"},
        Case{"NumberForBoolean", "check_finite = 1",
             "8:16: train.check_finite: 1 is a whole number; write true or false"},
        Case{"NumberForString", "[log]\ndir = 3",
             "9:7: log.dir: 3 is a whole number; write a string"},
        Case{"NumberForChoice", "optimizer = 3",
             "8:13: train.optimizer: 3 is a whole number; write one of \"sgd\", \"adam\", "
             "\"adamw\", \"rmsprop\", \"adagrad\""},
        Case{"DateForString", "[log]\ndir = 2024-01-01",
             "9:7: log.dir: this is a date or a time; write a string"},
        Case{"TableForString", "[log.dir]\nx = 1",
             "8:1: log.dir: {...} is a table; write a string"},
        Case{
            "ListForInteger", "[pipeline]\nranks = [1, \"a\", {}, [2]]",
            "9:9: pipeline.ranks: [1, \"a\", {...}, [2]] is a list; write a whole number from 1 to "
            "1048576"},
        Case{"IntegerForList", "[pipeline]\nsizes = 3",
             "9:9: pipeline.sizes: 3 is a whole number; write a list of whole numbers from 1 to "
             "1048576"},
        Case{"StringInList", "[pipeline]\nsizes = [1,\n \"a\"]",
             "10:2: pipeline.sizes[1]: \"a\" is a string; write a whole number from 1 to 1048576"},
        Case{"IntegerInStrings", "[pipeline]\ndevices = [0]",
             "9:12: pipeline.devices[0]: 0 is a whole number; write a string"},
        Case{"StringForAuto", "[auto_micro_batch]\nnum = \"many\"",
             "9:7: auto_micro_batch.num: \"many\" is a string; write a whole number from 0 to "
             "1048576, or \"auto\""}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    OutOfRange, Refusals,
    testing::Values(
        Case{"TooSmall", "[pipeline]\nmicro_batches = -3",
             "9:17: pipeline.micro_batches: -3 is out of range; write a whole number from 1 to "
             "1048576"},
        Case{
            "TooLarge", "[pipeline]\nthreads_per_rank = 1048577",
            "9:20: pipeline.threads_per_rank: 1048577 is out of range; write a whole number from 0 "
            "to 1048576"},
        Case{"NotANumber", "lr = nan",
             "8:6: train.lr: nan is out of range; write a number, 0 or more"},
        Case{"Infinite", "clip_norm = inf",
             "8:13: train.clip_norm: inf is out of range; write a number, 0 or more"},
        Case{"OpenBelow", "[pipeline]\ndeadline_seconds = 0",
             "9:20: pipeline.deadline_seconds: 0 is out of range; write a number above 0"},
        Case{"OpenAbove", "betas = [0.9, 1]",
             "8:15: train.betas[1]: 1 is out of range; write a number from 0 to below 1"},
        Case{"HalfOpen", "schedule = \"step\"\nschedule_every = 1\nschedule_factor = 0",
             "10:19: train.schedule_factor: 0 is out of range; write a number above 0, up to 1"},
        Case{"Length", "betas = [0.9]",
             "8:9: train.betas: [0.9] is a list of 1; write a list of 2 numbers from 0 to below 1"},
        Case{
            "Bytes", "[recompute]\nmode = \"budget\"\nbudget = \"8GX\"",
            "10:10: recompute.budget: \"8GX\" is a string and no number of bytes; write bytes such "
            "as 1048576 or \"8GiB\", 0 or more"},
        Case{
            "NegativeBytes", "[recompute]\nmode = \"budget\"\nbudget = -1",
            "10:10: recompute.budget: -1 is out of range; write bytes such as 1048576 or \"8GiB\", "
            "0 or more"},
        Case{"Choice", "[recompute]\nmode = \"sqt\"",
             "9:8: recompute.mode: there is no \"sqt\"; did you mean \"sqrt\"?"},
        Case{"ChoiceFarFromAll", "[amp]\ndtype = \"float32\"",
             "9:9: amp.dtype: there is no \"float32\"; write one of \"off\", \"bf16\", \"fp16\""},
        Case{"EmptyChoice", "[amp]\ndtype = \"\"",
             "9:9: amp.dtype: \"\" is empty; write one of \"off\", \"bf16\", \"fp16\""},
        Case{"Device", "[pipeline]\ndevices = [\"cuda:x\"]",
             "9:12: pipeline.devices[0]: \"cuda:x\" is no device; write \"cpu\" or \"cuda:0\""},
        Case{"Schedule", "[pipeline]\nschedule = \"1b1f\"",
             "9:12: pipeline.schedule: there is no \"1b1f\"; write one of \"gpipe\", \"1f1b\", "
             "\"interleaved-1f1b\", \"pipedream\", \"pipedream-2bw\", \"eager-pipedream\""},
        Case{"Loss", "loss = \"cross-entropy\"",
             "8:8: train.loss: there is no \"cross-entropy\"; did you mean \"cross_entropy\"?"}),
    name_of);

TEST(Refusal, LongValuesAreCutBetweenCharacters) {
  std::string shown = "\"a";
  for (int i = 0; i < 23; ++i) shown += "\xC3\xA4";  // two bytes each
  EXPECT_EQ(problem_of("[pipeline]\nranks = \"a" + std::string(50, 'a') + "\""),
            "run.toml:9:9: pipeline.ranks: \"" + std::string(47, 'a') +
                "... is a string; write a whole number from 1 to 1048576");
  std::string long_text = "a";
  for (int i = 0; i < 60; ++i) long_text += "\xC3\xA4";
  EXPECT_EQ(problem_of("[pipeline]\nranks = \"" + long_text + "\""),
            "run.toml:9:9: pipeline.ranks: " + shown +
                "... is a string; write a whole number from 1 to 1048576");
}

TEST(Refusal, ASectionIsATable) {
  EXPECT_THAT(problems_of("pipeline = 3\n" + least_config()),
              ElementsAre("run.toml:1:12: pipeline: 3 is a whole number; write [pipeline] once and "
                          "its keys below"));
  EXPECT_EQ(problem_of("[[pipeline]]\n"),
            "run.toml:8:1: pipeline: [{...}] is a list; write [pipeline] once and its keys below");
}

TEST(Refusal, AFileHasNoParameters) {
  EXPECT_THAT(
      problems_of("[model]\nfile = \"m.pt\"\nlayers = 3\n[data]\nname = \"text\"\nbatch = 1\n"
                  "[train]\nsteps = 1\n"),
      ElementsAre("run.toml:3:1: model.layers: unknown key; [model] has name, file, weights, "
                  "export_to"));
}

TEST(Refusal, ParametersAreCheckedAsKeysAre) {
  const auto problems = [](const std::string& model) {
    return problems_of("[model]\n" + model +
                       "\n[data]\nname = \"text\"\nbatch = 1\n[train]\nsteps = 1\n");
  };
  EXPECT_THAT(
      problems("name = \"gpt\"\nlayers = 0\ndropuot = 0.1\ntied = 1\nnorm = \"befor\""),
      ElementsAre("run.toml:3:10: model.layers: 0 is out of range; write a whole number from "
                  "1 to 1048576",
                  "run.toml:4:1: model.dropuot: unknown key; did you mean dropout?",
                  "run.toml:5:8: model.tied: 1 is a whole number; write true or false",
                  "run.toml:6:8: model.norm: there is no \"befor\"; did you mean "
                  "\"before\"?"));
  EXPECT_THAT(problems("name = \"mlp\"\nwidths = [1, 0]"),
              ElementsAre("run.toml:3:14: model.widths[1]: 0 is out of range; write a whole number "
                          "from 1 to 1048576"));
  // What a model that is not there would take is not known.
  EXPECT_THAT(problems("name = \"bert\"\nanything = 3"),
              ElementsAre("run.toml:2:8: model.name: there is no \"bert\"; write one of \"gpt\", "
                          "\"mlp\""));
}

TEST(Refusal, UndeclaredParametersAreValuesAtLeast) {
  const auto problems = [](const std::string& model) {
    return problems_of("[model]\nname = \"own\"\n" + model +
                           "\n[data]\nname = \"d\"\nbatch = 1\n[train]\nsteps = 1\n",
                       {}, {});
  };
  EXPECT_THAT(problems("a = {b = 1}\nc = [[1]]\nd = [1, \"x\"]\ne = nan\nf = 2024-01-01"),
              ElementsAre("run.toml:3:5: model.a: {...} is a table; write a string",
                          "run.toml:4:6: model.c[0]: [1] is a list; write a string",
                          "run.toml:5:9: model.d[1]: \"x\" is a string; write a whole number",
                          "run.toml:6:5: model.e: nan is out of range; write a number",
                          "run.toml:7:5: model.f: this is a date or a time; write a string"));
}

TEST(Syntax, IsToldWithItsLine) {
  EXPECT_THAT(problem_of("ranks == 2\n"), StartsWith("run.toml:8:8: syntax: "));
  EXPECT_THAT(problem_of("optimizer = adam\n"), StartsWith("run.toml:8:13: syntax: "));
  EXPECT_THAT(problem_of("steps = 3\n"), HasSubstr("syntax: "));  // twice
  EXPECT_THAT(problem_of("a = \"\xFF\"\n"), StartsWith("run.toml:8:"));
  EXPECT_THAT(problem_of("a = \"b"), HasSubstr("; write TOML: key = value"));
  // toml++ asserts that this does not occur.
  EXPECT_THAT(problem_of("b = 1\na = [}\n"),
              StartsWith("run.toml:9:1: syntax: a value is missing"));
}

TEST(Syntax, ComesWithTheMistakesOfOverrides) {
  EXPECT_THAT(problems_of("x", {"y"}),
              ElementsAre(StartsWith("run.toml:1:"),
                          "--set y: syntax: no value; write --set section.key=value"));
}

TEST(Syntax, SizeAndDepthAreLimited) {
  EXPECT_EQ(problem_of("#" + std::string((1 << 20), ' ')),
            "run.toml:1:1: syntax: 1048650 bytes; a config has at most 1048576, is this one?");
  std::string dots = "a";
  for (int i = 0; i < 65; ++i) dots += ".a";
  EXPECT_EQ(problem_of("[" + dots + "]\n"),
            "run.toml:8:1: syntax: more than 64 dots in one key; write [section] and key = value");
  EXPECT_THAT(problem_of("a = " + std::string(40, '[') + std::string(40, ']') + "\n"),
              StartsWith("run.toml:8:"));
}

}  // namespace
}  // namespace pipewright::config
