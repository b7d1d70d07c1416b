// Weights under Hugging Face's names: what PyTorch computes with them, and the same files back.

#include "pipewright/models/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "pipewright/models/bert.h"
#include "pipewright/models/gpt.h"
#include "pipewright/nn/loss.h"
#include "pipewright/nn/outline.h"
#include "pipewright/train/tensor_bytes.h"
#include "pipewright/train/trainer.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_checkpoint::TempFolder;

std::string fixture(const std::string& name) {
  return std::string(PIPEWRIGHT_TEST_DATA) + "/models/huggingface/" + name;
}

Sequence gpt2(bool tied = true) {
  return make_gpt({.layers = 2,
                   .dim = 24,
                   .heads = 3,
                   .seq = 12,
                   .vocab = 37,
                   .tied = tied,
                   .tanh_gelu = true,
                   .later = true});
}

Sequence bert() {
  return make_bert({.layers = 2, .dim = 24, .heads = 3, .seq = 12, .vocab = 37, .later = true});
}

Trainer trainer_of(Sequence model, int ranks = 2) {
  Strategy strategy;
  strategy.ranks = ranks;
  strategy.micro_batches = 2;
  return {std::move(model), cross_entropy(), {}, strategy};
}

using Named = std::map<std::string, torch::Tensor>;

Named read_all(const std::string& path) {
  const TensorSet set = open_weights(path);
  Named all;
  for (const std::string& name : set.names()) all[name] = read_tensor(set, name);
  return all;
}

void write_all(const std::string& path, const Named& tensors) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) views.push_back(view_of(name, tensor));
  write_safetensors(path, views);
}

/// The file with other names; none: left out.
template <typename Rename>
Named renamed(const Named& tensors, const Rename& rename) {
  Named result;
  for (const auto& [name, tensor] : tensors)
    if (const std::string other = rename(name); !other.empty()) result[other] = tensor;
  return result;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

LoadOptions gpt2_options(const std::string& path) {
  return {.name_in_file = gpt2_names(open_weights(path).names())};
}
LoadOptions bert_options(const std::string& path) {
  return {.name_in_file = bert_names(open_weights(path).names())};
}

torch::Tensor gpt2_logits(Trainer& trainer) {
  return trainer.predict({read_all(fixture("gpt2/expected.safetensors")).at("tokens")})[0];
}

/// At every position.
torch::Tensor bert_logits(Trainer& trainer) {
  const auto tokens = read_all(fixture("bert/expected.safetensors")).at("tokens");
  return trainer.predict({tokens, torch::arange(10).expand({3, 10}).contiguous()})[0];
}

double apart(const torch::Tensor& logits, const std::string& model) {
  const auto expected = read_all(fixture(model + "/expected.safetensors")).at("logits");
  EXPECT_EQ(logits.sizes(), expected.sizes());
  EXPECT_GT(expected.std().item<double>(), 0.5);  // there is something to be wrong about
  return (logits - expected).abs().max().item<double>();
}

TEST(HuggingFace, Gpt2AnswersAsPyTorchDoes) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    Trainer trainer = trainer_of(gpt2(), ranks);
    trainer.load_weights(fixture("gpt2"), gpt2_options(fixture("gpt2")));
    EXPECT_LT(apart(gpt2_logits(trainer), "gpt2"), 1e-4);
  }
}

TEST(HuggingFace, BertAnswersAsPyTorchDoes) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    Trainer trainer = trainer_of(bert(), ranks);
    trainer.load_weights(fixture("bert"), bert_options(fixture("bert")));
    EXPECT_LT(apart(bert_logits(trainer), "bert"), 1e-4);
  }
}

TEST(HuggingFace, Gpt2FilesWithoutPrefixAndWithAHeadAreRead) {
  const TempFolder dir;
  const Named file = read_all(fixture("gpt2"));
  Named bare = renamed(file, [](const auto& name) { return replaced(name, "transformer.", ""); });
  write_all(dir / "bare.safetensors", bare);
  bare["lm_head.weight"] = bare.at("wte.weight");
  write_all(dir / "head.safetensors", bare);
  for (const std::string& path : {dir / "bare.safetensors", dir / "head.safetensors"}) {
    Trainer trainer = trainer_of(gpt2());
    trainer.load_weights(path, gpt2_options(path));
    EXPECT_LT(apart(gpt2_logits(trainer), "gpt2"), 1e-4);
  }
  Trainer untied = trainer_of(gpt2(false));
  untied.load_weights(dir / "head.safetensors", gpt2_options(dir / "head.safetensors"));
  EXPECT_LT(apart(gpt2_logits(untied), "gpt2"), 1e-4);
}

TEST(HuggingFace, BertFilesOfAllStylesAreRead) {
  const TempFolder dir;
  const Named file = read_all(fixture("bert"));
  const auto bare = renamed(file, [](const auto& name) { return replaced(name, "bert.", ""); });
  const auto old = renamed(file, [](const auto& name) {
    return replaced(replaced(name, "LayerNorm.weight", "LayerNorm.gamma"), "LayerNorm.bias",
                    "LayerNorm.beta");
  });
  auto with_decoder = renamed(file, [](const auto& name) {
    return replaced(name, "cls.predictions.bias", "cls.predictions.decoder.bias");
  });
  with_decoder["cls.predictions.decoder.weight"] =
      file.at("bert.embeddings.word_embeddings.weight");
  int number = 0;
  for (const Named& one : {bare, old, with_decoder}) {
    const std::string path = dir / ("bert" + std::to_string(++number) + ".safetensors");
    write_all(path, one);
    Trainer trainer = trainer_of(bert());
    trainer.load_weights(path, bert_options(path));
    EXPECT_LT(apart(bert_logits(trainer), "bert"), 1e-4) << number;
  }
}

TEST(HuggingFace, AnEncoderWithoutItsHeadLeavesTheHeadAlone) {
  const TempFolder dir;
  write_all(dir / "encoder.safetensors",
            renamed(read_all(fixture("bert")), [](const std::string& name) {
              return name.starts_with("cls.") ? "" : replaced(name, "bert.", "");
            }));
  LoadOptions options = bert_options(dir / "encoder.safetensors");
  Trainer trainer = trainer_of(bert());
  EXPECT_THAT(refusal([&] { trainer.load_weights(dir / "encoder.safetensors", options); }),
              HasSubstr("missing: head.bias, head.norm.bias"));
  options.allow_missing = true;
  EXPECT_THAT(trainer.load_weights(dir / "encoder.safetensors", options).missing,
              ElementsAre("head.bias", "head.norm.bias", "head.norm.weight", "head.transform.bias",
                          "head.transform.weight"));
}

TEST(HuggingFace, ShapesThatDoNotFitAreNamedAsTheFileHasThem) {
  const TempFolder dir;
  Named file = read_all(fixture("gpt2"));
  auto& matrix = file.at("transformer.h.1.mlp.c_fc.weight");
  matrix = matrix.t().contiguous();  // as a Linear has it
  write_all(dir / "gpt2.safetensors", file);
  Trainer trainer = trainer_of(gpt2());
  EXPECT_THAT(refusal([&] {
                trainer.load_weights(dir / "gpt2.safetensors",
                                     gpt2_options(dir / "gpt2.safetensors"));
              }),
              HasSubstr("transformer.h.1.mlp.c_fc.weight is F32 [96, 24], the model's F32 [96, 24] "
                        "transposed"));
  file = read_all(fixture("bert"));
  auto& key = file.at("bert.encoder.layer.0.attention.self.key.weight");
  key = key.narrow(0, 0, 20).contiguous();
  write_all(dir / "bert.safetensors", file);
  Trainer other = trainer_of(bert());
  const std::string why = refusal([&] {
    other.load_weights(dir / "bert.safetensors", bert_options(dir / "bert.safetensors"));
  });
  EXPECT_THAT(why, HasSubstr("self.key.weight is F32 [20, 24]"));
  EXPECT_THAT(why, HasSubstr("the model's F32 [72, 24]"));
}

void expect_same_files(const std::string& got, const std::string& expected) {
  const Named own = read_all(got);
  const Named other = read_all(expected);
  std::vector<std::string> names, other_names;
  for (const auto& [name, tensor] : own) names.push_back(name);
  for (const auto& [name, tensor] : other) other_names.push_back(name);
  ASSERT_EQ(names, other_names);
  for (const auto& [name, tensor] : own) EXPECT_TRUE(tensor.equal(other.at(name))) << name;
}

/// So Python loads what is saved: it is what Python wrote.
TEST(HuggingFace, SavedFilesAreThoseThatWereLoaded) {
  const TempFolder dir;
  Trainer one = trainer_of(gpt2());
  one.load_weights(fixture("gpt2"), gpt2_options(fixture("gpt2")));
  one.save_weights(dir / "gpt2.safetensors", gpt2_names());
  expect_same_files(dir / "gpt2.safetensors", fixture("gpt2/model.safetensors"));
  Trainer other = trainer_of(bert());
  other.load_weights(fixture("bert"), bert_options(fixture("bert")));
  other.save_weights(dir / "bert", bert_names());  // a folder of files, with an index
  expect_same_files(dir / "bert", fixture("bert/model.safetensors"));
}

TEST(HuggingFace, EveryTensorHasAName) {
  for (const auto& [model, names] : {std::pair(gpt2(), gpt2_names()), {bert(), bert_names()}}) {
    const Outline outline = outline_of(model);
    for (std::size_t i = 0; i < outline.size(); ++i) {
      for (const TensorOutline& tensor : outline[i]) {
        const std::string name = model.layers()[i].name + "." + tensor.name;
        EXPECT_THAT(names(name).parts, Not(IsEmpty())) << name;
      }
    }
  }
  EXPECT_TRUE(gpt2_names()("block0.other.weight").empty());
  EXPECT_TRUE(bert_names()("other.weight").empty());
}

}  // namespace
}  // namespace pipewright
