// Runs that start from weights and leave some, under names that Python's tools know.

#include "pipewright/app/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "pipewright/app/run.h"
#include "pipewright/base/file.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/checkpoint/tensor_set.h"
#include "pipewright/config/read.h"
#include "pipewright/train/tensor_bytes.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"

namespace pipewright::app {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing_checkpoint::TempFolder;

constexpr const char* kRun = R"(
[model]
layers = 1
dim = 16
heads = 2
seq = 12
dropout = 0.0
[data]
batch = 6
tokens = 1000
[train]
steps = 2
optimizer = "sgd"
lr = 0.1
[pipeline]
ranks = 2
micro_batches = 2
threads_per_rank = 1
)";

struct Outcome {
  Ending ending;
  std::vector<std::string> notes;
};

/// `model`: gpt or bert.
Outcome run(const std::string& dir, const std::string& model, std::vector<std::string> overrides) {
  overrides.push_back("model.name=" + model);
  overrides.push_back(model == "gpt" ? "data.name=text" : "data.name=masked_text");
  Outcome outcome;
  Hooks hooks;
  hooks.note = [&](const std::string& line) { outcome.notes.push_back(line); };
  outcome.ending =
      train(config::read_text(kRun, "test.toml", overrides, catalog::known()), dir, false, hooks);
  return outcome;
}

/// The largest difference of any tensor; all have the same names.
double apart(const std::string& one, const std::string& other) {
  const TensorSet a = open_weights(one), b = open_weights(other);
  EXPECT_EQ(a.names(), b.names());
  double most = 0;
  for (const std::string& name : a.names())
    most = std::max(most, (read_tensor(a, name) - read_tensor(b, name)).abs().max().item<double>());
  return most;
}

TEST(Weights, OfARunAreWhereTheNextOneStarts) {
  const TempFolder dir;
  for (const std::string model : {"gpt", "bert"}) {
    run(dir / (model + "1"), model, {"model.export_to=" + dir / (model + "a")});
    const Outcome second =
        run(dir / (model + "2"), model,
            {"model.weights=" + dir / (model + "a"), "model.export_to=" + dir / (model + "b"),
             "seed=7", "train.steps=1", "train.lr=1e-30"});
    EXPECT_EQ(apart(dir / (model + "a"), dir / (model + "b")), 0);
    EXPECT_THAT(second.notes, Contains(HasSubstr("starts from the weights in")));
    run(dir / (model + "3"), model,
        {"model.export_to=" + dir / (model + "c"), "seed=7", "train.steps=1", "train.lr=1e-30"});
    EXPECT_GT(apart(dir / (model + "a"), dir / (model + "c")), 0);  // it does start elsewhere
  }
}

TEST(Weights, AreExportedAsPythonNamesThem) {
  const TempFolder dir;
  run(dir / "run", "gpt", {"model.export_to=" + dir / "gpt2", "model.gelu=tanh"});
  EXPECT_TRUE(open_weights(dir / "gpt2").contains("transformer.h.0.attn.c_attn.weight"));
  const auto config = nlohmann::json::parse(read_file(dir / "gpt2/config.json", "test"));
  EXPECT_EQ(config.at("model_type"), "gpt2");
  EXPECT_EQ(config.at("architectures"), nlohmann::json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(config.at("activation_function"), "gelu_new");
  EXPECT_EQ(config.at("vocab_size"), 260);
  EXPECT_EQ(config.at("n_head"), 2);
  EXPECT_TRUE(config.at("eos_token_id").is_null());  // 50256 is not among the 260
  run(dir / "run2", "bert", {"model.export_to=" + dir / "bert"});
  EXPECT_TRUE(open_weights(dir / "bert").contains("bert.encoder.layer.0.attention.self.key.bias"));
  EXPECT_EQ(nlohmann::json::parse(read_file(dir / "bert/config.json", "test")).at("hidden_size"),
            16);
}

TEST(Weights, AConfigBesideThemMustAgree) {
  const TempFolder dir;
  run(dir / "run", "gpt", {"model.export_to=" + dir / "gpt2"});
  const auto why = [&](const std::string& override) {
    return refusal([&] {
      run(dir / ("run" + override), "gpt", {"model.weights=" + dir / "gpt2", override});
    });
  };
  EXPECT_THAT(why("model.heads=4"),
              HasSubstr("config.json' says n_head = 2, the model has 4; set model.heads"));
  EXPECT_THAT(why("model.gelu=tanh"), HasSubstr("set model.gelu"));
  EXPECT_THAT(why("model.layers=2"), HasSubstr("missing"));
  EXPECT_THAT(why("model.dim=32"), HasSubstr("of another shape or type"));
}

TEST(Weights, MistakesAreAnsweredBeforeTheTraining) {
  const TempFolder dir;
  EXPECT_THAT(refusal([&] { run(dir / "a", "gpt", {"model.export_to=" + dir.path()}); }),
              HasSubstr("is there already; name a new folder"));
  EXPECT_THAT(refusal([&] { run(dir / "b", "gpt", {"model.weights=nowhere"}); }),
              HasSubstr("nowhere"));
}

}  // namespace
}  // namespace pipewright::app
