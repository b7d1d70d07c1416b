// Weights that other tools wrote, and weights for them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/refusal.h"
#include "tests/train/checkpoint_models.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_checkpoint::TempFolder;

constexpr Features kTied = {.tied = true, .batch_norm = true};

Trainer make_trainer(int ranks, const Features& f = kTied,
                     torch::ScalarType type = torch::kFloat64) {
  return {make_other_model(f, type), cross_entropy(), sgd(), strategy_of(ranks, 2)};
}

using Named = std::vector<std::pair<std::string, torch::Tensor>>;

/// As a program of another language would write it.
void write_file(const std::string& path, const Named& tensors) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    const auto dtype = tensor.scalar_type() == torch::kFloat64    ? DType::kF64
                       : tensor.scalar_type() == torch::kBFloat16 ? DType::kBF16
                       : tensor.scalar_type() == torch::kFloat32  ? DType::kF32
                                                                  : DType::kI64;
    views.push_back({name,
                     dtype,
                     tensor.sizes().vec(),
                     {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  write_safetensors(path, views);
}

Named weights_of(const Features& f) {
  const Sequence model = make_model(f);
  Named all = model.named_parameters();
  for (auto& buffer : model.named_buffers()) all.push_back(buffer);
  return all;
}

TEST(LoadWeights, FromOneFileForAnyNumberOfRanks) {
  const TempFolder dir;
  write_file(dir / "model.safetensors", weights_of(kTied));
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const std::string& path : {dir / "model.safetensors", dir.path()}) {
      Trainer trainer = make_trainer(ranks);
      const Loaded loaded = trainer.load_weights(path);
      EXPECT_THAT(loaded.missing, IsEmpty());
      for (const auto& [name, tensor] : weights_of(kTied)) {
        for (const auto& [own, value] : trainer.state_dict()) {
          EXPECT_TRUE(own != name || value.equal(tensor)) << name;
        }
      }
    }
  }
}

TEST(LoadWeights, ASharedTensorMayHaveTheNameOfAnyUseOrOfAll) {
  const TempFolder dir;
  Named by_head = weights_of(kTied);
  Named both = by_head;
  both.emplace_back("head.weight", both[0].second);
  ASSERT_EQ(by_head[0].first, "embed.weight");
  by_head[0].first = "head.weight";
  write_file(dir / "head.safetensors", by_head);
  write_file(dir / "both.safetensors", both);
  for (const auto* file : {"head.safetensors", "both.safetensors"}) {
    Trainer trainer = make_trainer(3);
    trainer.load_weights(dir / file);
    EXPECT_TRUE(trainer.state_dict()[0].second.equal(by_head[0].second)) << file;
  }
}

TEST(LoadWeights, ASharedTensorThatTheFileHasTwiceMustBeTheSame) {
  const TempFolder dir;
  Named both = weights_of(kTied);
  both.emplace_back("head.weight", both[0].second.detach() + 1);
  write_file(dir / "both.safetensors", both);
  Trainer trainer = make_trainer(3);
  const Tensors before = state_of(trainer);
  EXPECT_THAT(refusal([&] { trainer.load_weights(dir / "both.safetensors"); }),
              HasSubstr("one tensor for 'embed.weight' and 'head.weight'"));
  EXPECT_THAT(different(trainer, before), IsEmpty());
}

TEST(LoadWeights, FloatsOfAnotherSizeAreConverted) {
  const TempFolder dir;
  Named half = weights_of({});
  for (auto& [name, tensor] : half) tensor = tensor.detach().to(torch::kBFloat16);
  write_file(dir / "half.safetensors", half);
  Trainer trainer = make_trainer(2, {}, torch::kFloat32);
  trainer.load_weights(dir / "half.safetensors");
  const auto state = trainer.state_dict();
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].second.scalar_type(), torch::kFloat32);
    EXPECT_TRUE(state[i].second.equal(half[i].second.to(torch::kFloat32))) << state[i].first;
  }
}

TEST(LoadWeights, NamesMayBeTranslated) {
  const TempFolder dir;
  Named other = weights_of(kTied);
  for (auto& [name, tensor] : other) name = "transformer." + name;
  write_file(dir / "model.safetensors", other);
  Trainer trainer = make_trainer(2);
  trainer.load_weights(dir.path(),
                       {.name_in_file = [](const auto& name) { return "transformer." + name; }});
  EXPECT_TRUE(trainer.state_dict()[0].second.equal(other[0].second));
}

TEST(LoadWeights, WhatDoesNotFitIsListedAndNothingChanges) {
  const TempFolder dir;
  Named other = weights_of(kTied);
  ASSERT_EQ(other[1].first, "block0.norm.weight");
  other[1].first = "block0.ln.weight";
  other[2].second = torch::zeros({7}, torch::kFloat64);  // block0.norm.bias
  other.back().second = torch::zeros({}, torch::kInt64);
  ASSERT_EQ(other.back().first, "norm.num_batches_tracked");
  write_file(dir / "model.safetensors", other);
  for (int ranks = 1; ranks <= 2; ++ranks) {
    Trainer trainer = make_trainer(ranks);
    const Tensors before = state_of(trainer);
    EXPECT_THAT(refusal([&] { trainer.load_weights(dir.path()); }),
                AllOf(HasSubstr("'" + dir.path() + "' does not fit the model"),
                      HasSubstr("missing: block0.norm.weight;"),
                      HasSubstr("unexpected: 'block0.ln.weight';"),
                      HasSubstr("block0.norm.bias is F64 [7], the model's F64 [6]"),
                      HasSubstr("norm.num_batches_tracked is I64 [], the model's F64 []")));
    EXPECT_THAT(different(trainer, before), IsEmpty());
  }
}

TEST(LoadWeights, APartIsTakenWhereThatIsAllowed) {
  const TempFolder dir;
  write_file(dir / "part.safetensors", {{"fc1.bias", torch::full({kWidth}, 7.0, torch::kFloat64)},
                                        {"other", torch::ones({1})}});
  Trainer trainer = make_trainer(2);
  const Loaded loaded = trainer.load_weights(dir / "part.safetensors",
                                             {.allow_unexpected = true, .allow_missing = true});
  EXPECT_THAT(loaded.unexpected, ElementsAre("other"));
  EXPECT_THAT(loaded.missing, testing::Contains("embed.weight"));
  for (const auto& [name, tensor] : trainer.state_dict()) {
    EXPECT_EQ(tensor.equal(torch::full({kWidth}, 7.0, torch::kFloat64)), name == "fc1.bias")
        << name;
  }
}

TEST(SaveWeights, AsAFileAndAsAFolderForLoadWeights) {
  const TempFolder dir;
  Trainer trainer = make_trainer(3);
  train(&trainer, 0, 2);
  trainer.save_weights(dir / "model.safetensors");
  trainer.save_weights(dir / "model.safetensors");  // replaces
  trainer.save_weights(dir / "folder");
  EXPECT_THAT(refusal([&] { trainer.save_weights(dir / "folder"); }),
              HasSubstr("is there already"));
  for (const std::string& path : {dir / "model.safetensors", dir / "folder"}) {
    Trainer other = make_trainer(2);
    other.load_weights(path);
    EXPECT_THAT(different(other, state_of(trainer)), IsEmpty());
  }
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path()))
    ++files;
  EXPECT_EQ(files, 2) << "nothing is left beside";
}

TEST(SaveWeights, OfACheckpointAreWeightsToLoad) {
  const TempFolder dir;
  Trainer trainer = make_trainer(3);
  train(&trainer, 0, 2);
  const std::string path = trainer.save(dir.path(), {.background = false});
  Trainer other = make_trainer(2);
  other.load_weights(path);
  EXPECT_THAT(different(other, state_of(trainer)), IsEmpty());
  EXPECT_EQ(other.num_steps(), 0) << "weights alone";
}

}  // namespace
}  // namespace pipewright
