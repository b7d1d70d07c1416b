// What goes wrong with checkpoints: damaged ones, other models and optimizers, disks that refuse.
// Nothing is lost, and the trainer goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "tests/refusal.h"
#include "tests/train/checkpoint_models.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing_checkpoint::TempFolder;

constexpr Features kPlain = {};

Trainer make_trainer(int ranks = 2, OptimizerFactory optimizer = sgd(),
                     const Features& f = kPlain) {
  return {make_model(f), cross_entropy(), optimizer, strategy_of(ranks, 2)};
}

void flip_a_byte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  const int byte = file.peek();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

TEST(Resume, WithoutACheckpointSaysSoAndChangesNothing) {
  const TempFolder dir;
  Trainer trainer = make_trainer();
  train(&trainer, 0, 1, kPlain);
  const Tensors before = state_of(trainer);
  const Resumed resumed = trainer.resume(dir / "not there");
  EXPECT_FALSE(resumed);
  EXPECT_THAT(resumed.refused, IsEmpty());
  EXPECT_EQ(trainer.num_steps(), 1);
  EXPECT_THAT(different(trainer, before), IsEmpty());
}

TEST(Resume, FallsBackToTheNewestWholeOneAndSaysWhy) {
  const TempFolder dir;
  Trainer trainer = make_trainer();
  train(&trainer, 0, 1, kPlain);
  trainer.save(dir.path());
  train(&trainer, 1, 2, kPlain);
  const Tensors second = state_of(trainer);
  trainer.save(dir.path());
  train(&trainer, 2, 3, kPlain);
  const std::string third = trainer.save(dir.path());
  trainer.wait_for_save();
  flip_a_byte(third + "/optimizer-00002-of-00007.safetensors");
  Trainer other = make_trainer(1);
  const Resumed resumed = other.resume(dir.path());
  EXPECT_EQ(resumed.step, 2);
  EXPECT_THAT(resumed.path, HasSubstr("step-00000002"));
  ASSERT_THAT(resumed.refused, SizeIs(1));
  EXPECT_EQ(resumed.refused[0].path, third);
  EXPECT_THAT(resumed.refused[0].reason, AllOf(HasSubstr("optimizer-00002"), HasSubstr("SHA-256")));
  EXPECT_THAT(different(other, second), IsEmpty());
}

/// What a trainer is refused with, which it then shrugs off.
std::string resume_refusal(Trainer* trainer, const std::string& dir, const Features& f = kPlain) {
  train(trainer, 0, 1, f);
  const Tensors before = state_of(*trainer);
  const TempFolder own;
  const auto files = files_of(trainer->save(own / "a", {.background = false}));
  const std::string words = refusal([&] { trainer->resume(dir); });
  EXPECT_THAT(different(*trainer, before), IsEmpty());
  EXPECT_EQ(trainer->num_steps(), 1);
  EXPECT_EQ(files_of(trainer->save(own / "b", {.background = false})), files)
      << "the optimizer too";
  train(trainer, 1, 2, f);
  return words;
}

class Refused : public testing::Test {
 protected:
  Refused() {
    Trainer trainer = make_trainer();
    train(&trainer, 0, 2, kPlain);
    path_ = trainer.save(dir_.path(), {.background = false});
  }
  TempFolder dir_;
  std::string path_;
};

TEST_F(Refused, AnotherModelWithAllThatDoesNotFit) {
  Sequence model = make_model(kPlain);
  Sequence other;  // embed, block0, head of another size, and one that the checkpoint has not
  other.add("embed", torch::nn::Embedding(kVocabulary, kWidth));
  other.add("fc1", torch::nn::Linear(kWidth, kWidth));
  other.add("extra", torch::nn::Linear(kWidth, 2 * kWidth));
  other.add("head", torch::nn::Linear(2 * kWidth, kVocabulary));
  for (const Layer& layer : other.layers()) {
    layer.module->to(layer.name == "fc1" ? torch::kFloat32 : torch::kFloat64);
  }
  other.add_layer(
      "cast", [](const Tensors& x) { return x; }, nullptr);
  for (int ranks = 1; ranks <= 2; ++ranks) {
    Sequence copy = other;
    Trainer trainer(copy, cross_entropy(), sgd(), strategy_of(ranks, 1));
    EXPECT_THAT(refusal([&] { trainer.resume(dir_.path()); }),
                AllOf(HasSubstr(path_ + "' does not fit the model"),
                      HasSubstr("missing: extra.bias, extra.weight;"),
                      HasSubstr("unexpected: 'block0.down.bias', "), Not(HasSubstr("embed")),
                      HasSubstr("head.weight is F64 [11, 6], the model's F64 [11, 12]"),
                      HasSubstr("fc1.bias is F64 [6], the model's F32 [6]")));
  }
}

TEST_F(Refused, AnotherOptimizer) {
  Trainer with_adam = make_trainer(2, adam());
  EXPECT_THAT(resume_refusal(&with_adam, dir_.path()),
              AllOf(HasSubstr(path_), HasSubstr("saved with another optimizer"),
                    HasSubstr("torch::optim::SGDParamState, this one keeps "
                              "torch::optim::AdamParamState")));
  Trainer without_momentum = make_trainer(1, sgd(0.1, 0));
  EXPECT_THAT(resume_refusal(&without_momentum, dir_.path()), HasSubstr("this one keeps nothing"));
}

TEST_F(Refused, AnOptimizerThatKeptNothingIsAnotherOneToo) {
  const TempFolder dir;
  Trainer plain = make_trainer(2, sgd(0.1, 0));
  train(&plain, 0, 1, kPlain);
  plain.save(dir.path(), {.background = false});
  Trainer trainer = make_trainer();
  EXPECT_THAT(resume_refusal(&trainer, dir.path()), HasSubstr("it has nothing, this one keeps"));
}

TEST_F(Refused, OtherOptionsOfTheOptimizer) {
  const TempFolder dir;
  const auto amsgrad = [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                                torch::optim::AdamOptions(1e-2).amsgrad(true));
  };
  Trainer plain = make_trainer(2, adam());
  train(&plain, 0, 1, kPlain);
  plain.save(dir.path(), {.background = false});
  Trainer trainer = make_trainer(2, amsgrad);
  EXPECT_THAT(resume_refusal(&trainer, dir.path()),
              AllOf(HasSubstr("max_exp_avg_sq"), HasSubstr("with the same options")));
}

TEST_F(Refused, AMergeThatIsLongerThanThisRuns) {
  const TempFolder dir;
  Strategy strategy = strategy_of(2, 2);
  strategy.merge_steps = 3;
  Trainer merging(make_model(kPlain), cross_entropy(), sgd(), strategy);
  train(&merging, 0, 2, kPlain);
  merging.save(dir.path(), {.background = false});
  Trainer trainer = make_trainer();
  EXPECT_THAT(resume_refusal(&trainer, dir.path()),
              HasSubstr("saved after 2 steps of a merge, but merge_steps = 1; use more than 2"));
}

TEST_F(Refused, FoldersThatNoTrainerSaved) {
  const TempFolder dir;
  testing_checkpoint::Sample(1).save(dir.path(), 5);
  Trainer trainer = make_trainer();
  EXPECT_THAT(
      resume_refusal(&trainer, dir.path()),
      HasSubstr("is not the checkpoint of a trainer: its state has no member 'pipewright'"));
}

/// A folder that cannot be made, since a file is in its way: so for root too.
std::string blocked(const TempFolder& dir) {
  std::ofstream(dir / "file") << "x";
  return dir / "file/runs";
}

TEST(Save, AFailureIsThrownByWaitAndTrainingGoesOn) {
  const TempFolder dir;
  Trainer undisturbed = make_trainer();
  train(&undisturbed, 0, 3, kPlain);
  Trainer trainer = make_trainer();
  train(&trainer, 0, 1, kPlain);
  trainer.save(blocked(dir));
  train(&trainer, 1, 2, kPlain);
  EXPECT_THROW(trainer.wait_for_save(), StorageError);
  trainer.wait_for_save();  // it is told once
  train(&trainer, 2, 3, kPlain);
  EXPECT_THAT(different(trainer, state_of(undisturbed)), IsEmpty());
  trainer.save(dir / "good", {.background = false});
  EXPECT_TRUE(make_trainer().resume(dir / "good"));
}

TEST(Save, AFailureIsThrownByTheNextSaveOrToldToTheCallback) {
  const TempFolder dir;
  Trainer trainer = make_trainer();
  trainer.save(blocked(dir));
  EXPECT_THAT(refusal([&] { trainer.save(dir / "good"); }), HasSubstr("cannot make the folder"));
  EXPECT_FALSE(fs::exists(dir / "good"));
  std::promise<SaveReport> told;
  trainer.save(blocked(dir), {.done = [&](const SaveReport& report) { told.set_value(report); }});
  const SaveReport report = told.get_future().get();
  EXPECT_THAT(report.error, HasSubstr("cannot make the folder"));
  trainer.wait_for_save();
  SaveReport good;
  trainer.save(dir / "good", {.done = [&](const SaveReport& r) { good = r; }});
  trainer.wait_for_save();
  EXPECT_EQ(good.error, "");
  EXPECT_GT(good.bytes, 1000);
  EXPECT_TRUE(make_trainer().resume(dir / "good"));
}

TEST(Save, AFailureAtTheEndIsWarnedOf) {
  const TempFolder dir;
  testing::internal::CaptureStderr();
  {
    Trainer trainer = make_trainer();
    trainer.save(blocked(dir));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("the last checkpoint was not saved"), HasSubstr("cannot make")));
}

TEST(Save, TheDestructorWaitsForIt) {
  const TempFolder dir;
  Tensors saved;
  {
    Trainer trainer = make_trainer();
    train(&trainer, 0, 1, kPlain);
    saved = state_of(trainer);
    trainer.save(dir.path());
  }
  Trainer other = make_trainer(1);
  EXPECT_EQ(other.resume(dir.path()).step, 1);
  EXPECT_THAT(different(other, saved), IsEmpty());
}

TEST(Save, KeepsTheNewestAndTidiesWhatWasLeft) {
  const TempFolder dir;
  fs::create_directories(dir / ".step-00000009.writing");
  Trainer trainer = make_trainer();
  for (int step = 0; step < 4; ++step) {
    train(&trainer, step, step + 1, kPlain);
    trainer.save(dir.path(), {.keep = 2});
  }
  trainer.wait_for_save();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir.path()))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("step-00000003", "step-00000004"));
}

TEST(Save, RefusesAtOnceWhatCannotBeWritten) {
  const TempFolder dir;
  Trainer trainer = make_trainer();
  EXPECT_THAT(refusal([&] { trainer.save(dir.path(), {.keep = -1}); }), HasSubstr("keep = -1"));
  EXPECT_THAT(refusal([&] {
                trainer.save(dir.path(), {.state = {{"loss", NAN}}});
              }),
              HasSubstr("checkpoint"));
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(Save, ChargesNoStageForItsCopies) {
  const TempFolder dir;
  Trainer trainer = make_trainer(1, adam());
  train(&trainer, 0, 1, kPlain);
  const auto before = trainer.step(make_batch(11, 1, kPlain));
  trainer.save(dir.path());
  const auto after = trainer.step(make_batch(11, 1, kPlain));
  EXPECT_EQ(after.peak_bytes, before.peak_bytes);
  trainer.wait_for_save();
  Trainer other = make_trainer(1, adam());
  other.resume(dir.path());
  other.step(make_batch(11, 1, kPlain));
  EXPECT_EQ(other.step(make_batch(11, 1, kPlain)).peak_bytes, before.peak_bytes)
      << "the optimizer's state is the stage's, as if it had made it";
}

}  // namespace
}  // namespace pipewright
