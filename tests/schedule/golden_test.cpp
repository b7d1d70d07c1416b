// Programs as text files one can review. `PIPEWRIGHT_UPDATE_GOLDEN=1` writes them anew; read the
// difference.

#include <gtest/gtest.h>

#include <cstdlib>

#include "pipewright/base/file.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright {
namespace {

struct Golden {
  const char* file;
  ScheduleSpec spec;
  bool lowered = false;
};

std::string path_of(const Golden& golden) {
  return std::string(PIPEWRIGHT_TEST_DATA) + "/golden/" + golden.file + ".txt";
}

Program make(const Golden& golden) {
  const Program program = make_schedule(golden.spec);
  if (!golden.lowered) return program;
  if (program.forward_only) return lower_sends(program);
  return lower_step(
      lower_reduce(lower_sends(lower_recompute(program, RecomputePass::kExceptLast))));
}

const Golden kGoldens[] = {
    {"gpipe_3x3", {.name = "gpipe", .ranks = 3, .micro_batches = 3}},
    {"gpipe_2x3_2_chunks", {.name = "gpipe", .ranks = 2, .micro_batches = 3, .chunks = 2}},
    {"1f1b_2x4", {.name = "1f1b", .ranks = 2, .micro_batches = 4}},
    {"1f1b_4x2", {.name = "1f1b", .ranks = 4, .micro_batches = 2}},
    {"1f1b_3x4_lowered", {.name = "1f1b", .ranks = 3, .micro_batches = 4}, true},
    {"eager_1f1b_3x4", {.name = "eager-1f1b", .ranks = 3, .micro_batches = 4}},
    {"interleaved_2x4", {.name = "interleaved-1f1b", .ranks = 2, .micro_batches = 4}},
    {"interleaved_3x4", {.name = "interleaved-1f1b", .ranks = 3, .micro_batches = 4}},
    {"zb_h1_3x4", {.name = "zb-h1", .ranks = 3, .micro_batches = 4}},
    {"zb_h2_3x6", {.name = "zb-h2", .ranks = 3, .micro_batches = 6}},
    {"zb_v_2x4", {.name = "zb-v", .ranks = 2, .micro_batches = 4}},
    {"zb_v_2x4_lowered", {.name = "zb-v", .ranks = 2, .micro_batches = 4}, true},
    {"pipedream_3x1", {.name = "pipedream", .ranks = 3, .micro_batches = 1, .mini_batches = 5}},
    {"pipedream_3x1_sync",
     {.name = "pipedream",
      .ranks = 3,
      .micro_batches = 1,
      .mini_batches = 5,
      .vertical_sync = true}},
    {"pipedream_2bw_2x2",
     {.name = "pipedream-2bw", .ranks = 2, .micro_batches = 2, .mini_batches = 4}},
    {"pipedream_2bw_2x2_lowered",
     {.name = "pipedream-2bw", .ranks = 2, .micro_batches = 2, .mini_batches = 3},
     true},
    {"forward_only_3x4", {.name = "forward-only", .ranks = 3, .micro_batches = 4}},
    {"forward_only_2x2_lowered", {.name = "forward-only", .ranks = 2, .micro_batches = 2}, true},
};

class GoldenProgram : public testing::TestWithParam<Golden> {};

TEST_P(GoldenProgram, IsAsReviewed) {
  const std::string text = to_text(make(GetParam()));
  if (std::getenv("PIPEWRIGHT_UPDATE_GOLDEN") != nullptr)
    write_file(path_of(GetParam()), text, "golden");
  EXPECT_EQ(text, read_file(path_of(GetParam()), "golden"));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenProgram, testing::ValuesIn(kGoldens),
                         [](const auto& test) { return std::string("p_") + test.param.file; });

}  // namespace
}  // namespace pipewright
