#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/checkpoint/safetensors.h"
#include "pipewright/data/array_source.h"
#include "pipewright/data/click_source.h"
#include "pipewright/data/image_source.h"
#include "pipewright/data/metrics.h"
#include "pipewright/data/pair_source.h"
#include "pipewright/data/segment_source.h"
#include "pipewright/data/token_source.h"
#include "pipewright/input/generated_clicks.h"
#include "pipewright/input/generated_images.h"
#include "pipewright/input/generated_pairs.h"
#include "pipewright/input/npy.h"
#include "pipewright/input/sentences.h"
#include "pipewright/input/wordpiece.h"
#include "tests/input/folder.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using testing_input::Folder;

using Samples = std::vector<std::int64_t>;

torch::Tensor row(std::initializer_list<std::int64_t> numbers) {
  return torch::tensor(std::vector<std::int64_t>(numbers));
}

// ---- Tokens ----

TEST(TokenSource, PiecesFollowEachOtherAndTheLastIsFull) {
  const auto stream = std::make_shared<MemoryStream>(Tokens{0, 1, 2, 3, 4, 5, 6, 7, 8});
  const TokenSource source(stream, 3);
  ASSERT_EQ(source.size(), 3);  // 8 tokens have one after them
  const SampleBatch batch = source.batch(Samples{2, 0, 1}, 0);
  EXPECT_TRUE(batch.inputs[0][0].equal(row({5, 6, 7})));
  EXPECT_TRUE(batch.targets[0][0].equal(row({6, 7, 8})));
  EXPECT_TRUE(batch.inputs[0][1].equal(row({0, 1, 2})));
  EXPECT_TRUE(batch.inputs[0][2].equal(row({3, 4, 5})));
  EXPECT_TRUE(batch.targets[0][2].equal(row({4, 5, 6})));
}

TEST(TokenSource, EveryTokenIsThereForEveryLength) {
  for (std::int64_t tokens = 2; tokens <= 20; ++tokens) {
    Tokens all;
    for (std::int32_t i = 0; i < tokens; ++i) all.push_back(i);
    const auto stream = std::make_shared<MemoryStream>(all);
    for (std::int64_t length = 1; length < tokens; ++length) {
      const TokenSource source(stream, length);
      std::vector<char> seen(static_cast<std::size_t>(tokens), 0);
      for (std::int64_t i = 0; i < source.size(); ++i) {
        const SampleBatch batch = source.batch(Samples{i}, 0);
        for (std::int64_t t = 0; t < length; ++t) {
          const auto token = batch.targets[0][0][t].item<std::int64_t>();
          EXPECT_EQ(batch.inputs[0][0][t].item<std::int64_t>() + 1, token);
          seen[static_cast<std::size_t>(token)] = 1;
        }
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), tokens - 1) << tokens << " " << length;
    }
  }
}

TEST(TokenSource, RefusesTooLittleText) {
  const auto stream = std::make_shared<MemoryStream>(Tokens{1, 2, 3});
  EXPECT_EQ(refusal([&] { TokenSource(stream, 3); }),
            "[data] the text has 3 tokens, sequences of length 3 need 4; use a shorter length, or "
            "more text");
  EXPECT_EQ(refusal([&] { TokenSource(stream, 0); }), "[data] length = 0; use 1 or more");
}

// ---- Masked tokens ----

struct MadeText {
  std::shared_ptr<WordPiece> vocabulary =
      std::make_shared<WordPiece>(sentence_vocabulary(), "made");
  std::shared_ptr<MemoryStream> stream =
      std::make_shared<MemoryStream>(sentence_tokens(*vocabulary, 2000, 1));
  MaskedSource source{stream, vocabulary, 34, 7};
};

TEST(MaskedSource, HidesWhatItAsksFor) {
  const MadeText made;
  ASSERT_EQ(made.source.predictions(), 5);  // 0.15 of 32, rounded
  const SampleBatch batch = made.source.batch(Samples{0, 3}, 0);
  EXPECT_EQ(batch.inputs[0].sizes(), torch::IntArrayRef({2, 34}));
  EXPECT_EQ(batch.inputs[1].sizes(), torch::IntArrayRef({2, 5}));
  std::vector<std::int64_t> original(32);
  for (std::int64_t b = 0; b < 2; ++b) {
    made.stream->read(b == 0 ? 0 : 3 * 32, original);
    auto restored = batch.inputs[0][b].clone();
    restored.scatter_(0, batch.inputs[1][b], batch.targets[0][b]);
    EXPECT_TRUE(restored.slice(0, 1, 33).equal(torch::tensor(original)));
    EXPECT_EQ(restored[0].item<std::int64_t>(), made.vocabulary->begin());
    EXPECT_EQ(restored[33].item<std::int64_t>(), made.vocabulary->end());
    EXPECT_FALSE(restored.equal(batch.inputs[0][b]));
  }
}

TEST(MaskedSource, DrawsBySampleEpochAndSeedAlone) {
  const MadeText made;
  const auto tokens = [&](const Samples& samples, std::int64_t epoch) {
    return made.source.batch(samples, epoch).inputs[0];
  };
  EXPECT_TRUE(tokens({4, 9}, 2)[1].equal(tokens({9}, 2)[0]));
  EXPECT_FALSE(tokens({9}, 2).equal(tokens({9}, 3)));
  const MaskedSource other(made.stream, made.vocabulary, 34, 8);
  EXPECT_FALSE(other.batch(Samples{9}, 2).inputs[0].equal(tokens({9}, 2)));
}

TEST(MaskedSource, RowsWithoutWordsHaveNothingToPredict) {
  const auto bytes = std::make_shared<ByteTokenizer>();
  const auto stream = std::make_shared<MemoryStream>(Tokens(10, bytes->pad()));
  const SampleBatch batch = MaskedSource(stream, bytes, 12, 1).batch(Samples{0}, 0);
  EXPECT_TRUE((batch.targets[0] == kIgnoredTarget).all().item<bool>());
  EXPECT_EQ(refusal([&] { MaskedSource(stream, bytes, 2, 1); }),
            "[data] length = 2; use 3 or more");
}

// ---- Pairs ----

class FewPairs final : public PairSet {
 public:
  std::int64_t size() const override { return 3; }
  SentencePair pair(std::int64_t number) const override {
    if (number == 0) return {"ab", "xyz"};
    if (number == 1) return {"", "x"};
    return {"abcdef", "uvwxyz"};
  }
};

TEST(PairSource, FillsUpAndShortens) {
  const auto bytes = std::make_shared<ByteTokenizer>();
  const std::int64_t begin = bytes->begin();
  const std::int64_t end = bytes->end();
  const std::int64_t pad = bytes->pad();
  const PairSource source(std::make_shared<FewPairs>(), bytes, bytes,
                          {.source_length = 4, .target_length = 5});
  ASSERT_EQ(source.size(), 2);
  EXPECT_EQ(source.report().text(),
            "2 pairs; 1 left out, as a sentence is empty; 1 shortened to fit\n");
  const SampleBatch batch = source.batch(Samples{0, 1}, 0);
  EXPECT_TRUE(batch.inputs[0][0].equal(row({'a', 'b', end, pad})));
  EXPECT_TRUE(batch.inputs[1][0].equal(row({begin, 'x', 'y', 'z', pad})));
  EXPECT_TRUE(batch.targets[0][0].equal(row({'x', 'y', 'z', end, kIgnoredTarget})));
  EXPECT_TRUE(batch.inputs[0][1].equal(row({'a', 'b', 'c', end})));
  EXPECT_TRUE(batch.inputs[1][1].equal(row({begin, 'u', 'v', 'w', 'x'})));
  EXPECT_TRUE(batch.targets[0][1].equal(row({'u', 'v', 'w', 'x', end})));
}

TEST(PairSource, TakesMadePairs) {
  const auto bytes = std::make_shared<ByteTokenizer>();
  const auto pairs = std::make_shared<GeneratedPairs>(200, 1);
  const PairSource source(pairs, bytes, bytes, {.source_length = 64, .target_length = 64});
  EXPECT_EQ(source.size(), 200);
  EXPECT_EQ(source.report().shortened, 0);
  EXPECT_EQ(refusal([&] { PairSource(pairs, bytes, bytes, {.source_length = 1}); }),
            "[data] lengths of 1 and 64 tokens; use 2 or more");
}

// ---- Pictures, clicks, arrays ----

TEST(SegmentSource, HasAClassForEveryPixel) {
  const auto images = std::make_shared<GeneratedSegments>(5, 2, 8, 1);
  const SampleBatch batch = SegmentSource(images).batch(Samples{4, 1}, 0);
  ASSERT_EQ(batch.inputs[0].sizes(), torch::IntArrayRef({2, 2, 8, 8}));
  ASSERT_EQ(batch.targets[0].sizes(), torch::IntArrayRef({2, 8, 8}));
  std::vector<std::byte> pixels(128);
  std::vector<std::uint8_t> classes(64);
  images->read(1, pixels, classes);
  const auto pixel = batch.inputs[0][1].flatten();
  const auto kind = batch.targets[0][1].flatten();
  for (std::int64_t i = 0; i < 128; ++i) {
    EXPECT_NEAR(pixel[i].item<double>(),
                std::to_integer<int>(pixels[static_cast<std::size_t>(i)]) / 127.5 - 1, 1e-6);
  }
  for (std::int64_t i = 0; i < 64; ++i)
    EXPECT_EQ(kind[i].item<int>(), classes[static_cast<std::size_t>(i)]);
}

TEST(ImageSource, ScalesBytesByChannel) {
  const auto images = std::make_shared<GeneratedImages>(6, 2, 8, 1);
  const ImageSource source(images, {.mean = {0, 0.5}, .deviation = {1, 0.25}});
  const SampleBatch batch = source.batch(Samples{5, 2}, 0);
  ASSERT_EQ(batch.inputs[0].sizes(), torch::IntArrayRef({2, 2, 8, 8}));
  std::vector<std::byte> bytes(images->image_bytes());
  images->read(2, bytes);
  for (std::int64_t c = 0; c < 2; ++c) {
    for (std::int64_t i = 0; i < 64; ++i) {
      const double byte = std::to_integer<int>(bytes[static_cast<std::size_t>(c * 64 + i)]) / 255.0;
      EXPECT_FLOAT_EQ(batch.inputs[0][1][c][i / 8][i % 8].item<float>(),
                      static_cast<float>(c == 0 ? byte : (byte - 0.5) / 0.25));
    }
  }
  EXPECT_EQ(batch.targets[0][0].item<std::int64_t>(), images->label(5));
  EXPECT_EQ(refusal([&] {
              ImageSource(images, {.mean = {1, 2, 3}});
            }),
            "[data] a mean or deviation of 3 numbers for pictures of 2 channels; give one, or one "
            "each");
  EXPECT_EQ(refusal([&] { ImageSource(images, {.deviation = {0}}); }),
            "[data] a deviation of 0; use more than 0");
}

TEST(ClickSource, HasNumbersFieldsAndLabels) {
  const auto clicks = std::make_shared<GeneratedClicks>(ClickLogOptions{.rows = 50});
  const SampleBatch batch = ClickSource(clicks).batch(Samples{7, 3}, 0);
  const ClickRow third = clicks->row(3);
  EXPECT_TRUE(batch.inputs[0][1].equal(torch::tensor(third.numeric)));
  EXPECT_TRUE(batch.inputs[1][1].equal(torch::tensor(third.fields)));
  EXPECT_EQ(batch.targets[0][1].item<float>(), third.label);
  EXPECT_EQ(batch.inputs[1].sizes(), torch::IntArrayRef({2, 8}));
}

std::string npy_of(const torch::Tensor& tensor, DType dtype) {
  const std::string head = npy_head({dtype, false, false, tensor.sizes().vec(), 0});
  return head + std::string(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
}

TEST(ArraySource, ReadsRowsOfNpyAndSafetensors) {
  const Folder folder;
  const auto points = torch::arange(24, torch::kFloat64).view({4, 2, 3});
  const auto labels = torch::tensor({3, 1, 2, 0}, torch::kInt64);
  folder.file("points.npy", npy_of(points, DType::kF64));
  const TensorView view = {"labels",
                           DType::kI64,
                           {4},
                           {static_cast<const std::byte*>(labels.data_ptr()), labels.nbytes()}};
  write_safetensors(folder.path("labels.safetensors"), std::span(&view, 1));
  std::vector<ArrayFile> inputs;
  inputs.push_back(open_array(folder.path("points.npy")));
  std::vector<ArrayFile> targets;
  targets.push_back(open_array(folder.path("labels.safetensors:labels")));
  const ArraySource source(std::move(inputs), std::move(targets));
  const SampleBatch batch = source.batch(Samples{2, 0, 2}, 0);
  EXPECT_TRUE(batch.inputs[0].equal(points.index_select(0, row({2, 0, 2}))));
  EXPECT_TRUE(batch.targets[0].equal(row({2, 3, 2})));
}

TEST(ArraySource, RefusesArraysThatDoNotFit) {
  const Folder folder;
  folder.file("four.npy", npy_of(torch::zeros({4}), DType::kF32));
  folder.file("five.npy", npy_of(torch::zeros({5}), DType::kF32));
  const auto both = [&] {
    std::vector<ArrayFile> inputs;
    inputs.push_back(open_array(folder.path("four.npy")));
    std::vector<ArrayFile> targets;
    targets.push_back(open_array(folder.path("five.npy")));
    ArraySource(std::move(inputs), std::move(targets));
  };
  EXPECT_EQ(folder.without(refusal(both)),
            "[data] 'four.npy' has 4 rows, 'five.npy' 5; row i of each is sample i");
  EXPECT_EQ(refusal([] { ArraySource({}, {}); }), "[data] no array for the inputs; name one");
  EXPECT_EQ(refusal([] { open_array("x.csv"); }),
            "[data] 'x.csv' names no array; use FILE.npy, FILE.idx or FILE.safetensors:TENSOR");
  const auto half = torch::zeros({2});
  const TensorView view = {
      "a", DType::kF32, {2}, {static_cast<const std::byte*>(half.data_ptr()), half.nbytes()}};
  write_safetensors(folder.path("x.safetensors"), std::span(&view, 1));
  EXPECT_EQ(folder.without(refusal([&] { open_array(folder.path("x.safetensors:b")); })),
            "[data] 'x.safetensors' has no tensor 'b'; it has: 'a'");
}

// ---- Figures ----

TEST(Accuracy, CountsTheTargetsThatCount) {
  const auto logits = torch::tensor({{1.0, 2.0}, {3.0, 0.0}, {0.0, 1.0}, {5.0, 6.0}});
  Accuracy sum = accuracy(logits, row({1, 1, kIgnoredTarget, 1}));
  EXPECT_EQ(sum.correct, 2);
  EXPECT_EQ(sum.counted, 3);
  sum += accuracy(logits.view({2, 2, 2}), torch::ones({2, 2}, torch::kInt64));
  EXPECT_DOUBLE_EQ(sum.share(), 5.0 / 7);
  EXPECT_EQ(Accuracy().share(), 0);
  EXPECT_THAT(refusal([&] { accuracy(logits, row({1})); }), HasSubstr("[accuracy] logits [4, 2]"));
}

TEST(AreaUnderCurveOfTensors, TakesAnyTypes) {
  const auto scores = torch::tensor({0.1F, 0.4F, 0.35F, 0.8F});
  EXPECT_EQ(area_under_curve(scores, torch::tensor({0.0F, 0.0F, 1.0F, 1.0F})), 0.75);
  EXPECT_EQ(area_under_curve(scores.view({4, 1}), row({0, 0, 1, 1})), 0.75);
  EXPECT_THAT(refusal([&] {
                area_under_curve(scores, torch::tensor({0.0, 0.5, 1.0, 1.0}));
              }),
              HasSubstr("of row 1; use 0 and 1"));
}

}  // namespace
}  // namespace pipewright
