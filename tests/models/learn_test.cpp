// A small model of each family learns its made task over two stages, to what is stated here.

#include <gtest/gtest.h>

#include "pipewright/data/image_source.h"
#include "pipewright/data/loader.h"
#include "pipewright/data/metrics.h"
#include "pipewright/data/pair_source.h"
#include "pipewright/data/segment_source.h"
#include "pipewright/data/token_source.h"
#include "pipewright/input/generated_images.h"
#include "pipewright/input/generated_pairs.h"
#include "pipewright/input/sentences.h"
#include "pipewright/input/wordpiece.h"
#include "pipewright/models/amoebanet.h"
#include "pipewright/models/bert.h"
#include "pipewright/models/encoder_decoder.h"
#include "pipewright/models/gpt.h"
#include "pipewright/models/resnet.h"
#include "pipewright/models/unet.h"
#include "pipewright/models/vgg.h"
#include "pipewright/train/trainer.h"

namespace pipewright {
namespace {

using Source = std::shared_ptr<const DataSource>;

struct Task {
  Source training;
  Source fresh;  // to be told right
  std::int64_t batch = 32;
  int steps = 100;
  double rate = 3e-3;
};

/// The share of fresh samples' answers that are right after training over two stages.
double learned(Sequence model, const Task& task) {
  Strategy strategy;
  strategy.ranks = 2;
  strategy.micro_batches = 2;
  strategy.threads_per_rank = 1;
  const auto adam = [&](const Parameters& parameters) {
    return std::make_unique<torch::optim::Adam>(parameters, task.rate);
  };
  Trainer trainer(std::move(model), cross_entropy(), adam, strategy);
  DataLoader loader(task.training, {.batch = task.batch, .seed = 1});
  for (int step = 0; step < task.steps; ++step) {
    const SampleBatch batch = loader.next();
    trainer.step({batch.inputs, batch.targets});
  }
  DataLoader fresh(task.fresh, {.batch = 64, .shuffle = false});
  Accuracy sum;
  for (std::int64_t i = 0; i < fresh.batches_per_epoch(); ++i) {
    const SampleBatch batch = fresh.next();
    sum += accuracy(trainer.predict(batch.inputs)[0], batch.targets[0]);
  }
  return sum.share();
}

Source images(std::int64_t count, std::uint64_t seed) {
  return std::make_shared<ImageSource>(std::make_shared<GeneratedImages>(count, 1, 16, seed));
}

/// Ten classes of stripes: a guess is right in a tenth.
Task stripes(int steps, double rate) { return {images(640, 1), images(128, 2), 32, steps, rate}; }

TEST(Learns, ResNetTellsStripesApart) {
  Sequence model = make_resnet({.blocks = {1, 1},
                                .width = 8,
                                .channels = 1,
                                .classes = 10,
                                .image = 16,
                                .small_images = true,
                                .later = true});
  EXPECT_GT(learned(std::move(model), stripes(75, 5e-3)), 0.9);
}

TEST(Learns, VggTellsStripesApart) {
  Sequence model = make_vgg({.convolutions = {1, 1},
                             .widths = {8, 16},
                             .hidden = 32,
                             .pooled = 4,
                             .channels = 1,
                             .classes = 10,
                             .image = 16,
                             .dropout = 0.1,
                             .norm = true,
                             .later = true});
  EXPECT_GT(learned(std::move(model), stripes(200, 5e-3)), 0.8);
}

TEST(Learns, AmoebaNetTellsStripesApart) {
  Sequence model = make_amoebanet(
      {.layers = 3, .filters = 32, .channels = 1, .classes = 10, .image = 16, .later = true});
  EXPECT_GT(learned(std::move(model), stripes(180, 3e-3)), 0.6);
}

/// Two thirds of the pixels are around the shapes.
TEST(Learns, UNetTellsDiscsFromSquares) {
  const auto segments = [](std::int64_t count, std::uint64_t seed) {
    return std::make_shared<SegmentSource>(std::make_shared<GeneratedSegments>(count, 1, 16, seed));
  };
  Sequence model = make_unet({.depth = 2,
                              .convolutions = 2,
                              .width = 8,
                              .channels = 1,
                              .classes = 3,
                              .image = 16,
                              .dropout = 0,
                              .later = true});
  EXPECT_GT(learned(std::move(model), {segments(640, 1), segments(64, 2), 32, 75, 5e-3}), 0.8);
}

TEST(Learns, EncoderDecoderTranslates) {
  const auto words = std::make_shared<WordPiece>(pair_vocabulary(), "made");
  const auto pairs = [&](std::int64_t count, std::uint64_t seed) {
    return std::make_shared<PairSource>(std::make_shared<GeneratedPairs>(count, seed), words, words,
                                        PairSource::Options{12, 12});
  };
  Sequence model = make_encoder_decoder({.layers = 1,
                                         .hidden = 64,
                                         .heads = 4,
                                         .dim = 32,
                                         .seq = 12,
                                         .source_vocab = words->size(),
                                         .target_vocab = words->size(),
                                         .pad = words->pad(),
                                         .dropout = 0,
                                         .later = true});
  EXPECT_GT(learned(std::move(model), {pairs(2000, 1), pairs(128, 2), 32, 150, 5e-3}), 0.95);
}

/// The most frequent byte is 0.15 of them.
TEST(Learns, GptGoesOnWithSentences) {
  const ByteTokenizer bytes;
  const auto text = [&](std::int64_t tokens, std::uint64_t seed) {
    return std::make_shared<TokenSource>(
        std::make_shared<MemoryStream>(sentence_tokens(bytes, tokens, seed)), 32);
  };
  Sequence model = make_gpt(
      {.layers = 2, .dim = 64, .heads = 4, .seq = 32, .vocab = bytes.size(), .later = true});
  EXPECT_GT(learned(std::move(model), {text(40000, 1), text(4000, 2), 16, 200, 3e-3}), 0.35);
}

/// The most frequent word is 0.134 of those hidden. With a rate of 3e-3 that is all that the model
/// knows for some hundred steps; how many, a machine's rounding decides.
TEST(Learns, BertGuessesHiddenWords) {
  const auto words = std::make_shared<WordPiece>(sentence_vocabulary(), "made");
  const auto text = [&](std::int64_t tokens, std::uint64_t seed) {
    return std::make_shared<MaskedSource>(
        std::make_shared<MemoryStream>(sentence_tokens(*words, tokens, seed)), words, 24, seed);
  };
  Sequence model = make_bert({.layers = 2,
                              .dim = 64,
                              .heads = 4,
                              .seq = 24,
                              .vocab = words->size(),
                              .dropout = 0,
                              .later = true});
  EXPECT_GT(learned(std::move(model), {text(40000, 1), text(4000, 2), 32, 800, 2e-3}), 0.35);
}

}  // namespace
}  // namespace pipewright
