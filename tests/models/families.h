#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pipewright/models/amoebanet.h"
#include "pipewright/models/bert.h"
#include "pipewright/models/encoder_decoder.h"
#include "pipewright/models/gpt.h"
#include "pipewright/models/resnet.h"
#include "pipewright/models/unet.h"
#include "pipewright/models/vgg.h"
#include "tests/train/test_models.h"

namespace pipewright {

/// A model of each kind, small enough for a test, with data of its shape.
struct Family {
  std::string name;
  std::function<Sequence(bool later)> make;
  std::function<Batch(int rows)> batch;
  std::vector<std::int64_t> output;  // shape, of one row
};

inline torch::Tensor tokens(std::int64_t vocab, int rows, int length) {
  return torch::randint(vocab, {rows, length}, torch::kInt64);
}

inline Batch pictures(int rows, int channels, int size, int classes) {
  return {.inputs = {torch::randn({rows, channels, size, size}, torch::kFloat64)},
          .targets = {torch::randint(classes, {rows}, torch::kInt64)}};
}

inline Family gpt_family() {
  return {"gpt",
          [](bool later) {
            return make_gpt({.layers = 2,
                             .dim = 8,
                             .heads = 2,
                             .seq = 6,
                             .vocab = 11,
                             .dropout = 0.1,
                             .later = later});
          },
          [](int rows) -> Batch {
            return {.inputs = {tokens(11, rows, 6)}, .targets = {tokens(11, rows, 6)}};
          },
          {6, 11}};
}

inline Family bert_family() {
  return {"bert",
          [](bool later) {
            return make_bert({.layers = 1,
                              .dim = 8,
                              .heads = 2,
                              .seq = 6,
                              .vocab = 11,
                              .dropout = 0.1,
                              .later = later});
          },
          [](int rows) -> Batch {
            return {.inputs = {tokens(11, rows, 6), tokens(6, rows, 2)},
                    .targets = {tokens(11, rows, 2)}};
          },
          {2, 11}};
}

inline Family encoder_decoder_family() {
  return {"encoder_decoder",
          [](bool later) {
            return make_encoder_decoder({.layers = 2,
                                         .hidden = 12,
                                         .heads = 2,
                                         .dim = 8,
                                         .head_width = 3,
                                         .seq = 7,
                                         .source_vocab = 11,
                                         .target_vocab = 13,
                                         .pad = 0,
                                         .dropout = 0.1,
                                         .later = later});
          },
          [](int rows) -> Batch {
            auto source = tokens(10, rows, 7) + 1;
            source.slice(1, 5).zero_();  // filled up
            auto targets = tokens(13, rows, 6);
            targets[0].slice(0, 3).fill_(-100);
            return {.inputs = {source, tokens(13, rows, 6)}, .targets = {targets}};
          },
          {6, 13}};
}

inline Family resnet_family() {
  return {"resnet",
          [](bool later) {
            return make_resnet({.blocks = {2, 1},
                                .width = 4,
                                .channels = 2,
                                .classes = 3,
                                .image = 16,
                                .later = later});
          },
          [](int rows) { return pictures(rows, 2, 16, 3); },
          {3}};
}

inline Family vgg_family() {
  return {"vgg",
          [](bool later) {
            return make_vgg({.convolutions = {1, 2},
                             .widths = {4, 6},
                             .hidden = 8,
                             .pooled = 2,
                             .channels = 2,
                             .classes = 3,
                             .image = 9,
                             .dropout = 0.2,
                             .norm = true,
                             .later = later});
          },
          [](int rows) { return pictures(rows, 2, 9, 3); },
          {3}};
}

inline Family amoebanet_family() {
  return {
      "amoebanet",
      [](bool later) {
        return make_amoebanet(
            {.layers = 3, .filters = 16, .channels = 2, .classes = 3, .image = 35, .later = later});
      },
      [](int rows) { return pictures(rows, 2, 35, 3); },
      {3}};
}

inline Family unet_family() {
  return {"unet",
          [](bool later) {
            return make_unet({.depth = 2,
                              .convolutions = 2,
                              .width = 4,
                              .channels = 2,
                              .classes = 3,
                              .image = 11,
                              .dropout = 0.2,
                              .later = later});
          },
          [](int rows) {
            Batch batch = pictures(rows, 2, 11, 3);
            batch.targets = {torch::randint(3, {rows, 11, 11}, torch::kInt64)};
            return batch;
          },
          {11, 11, 3}};
}

inline std::vector<Family> families() {
  return {gpt_family(),    bert_family(), encoder_decoder_family(),
          resnet_family(), vgg_family(),  amoebanet_family(),
          unet_family()};
}

/// In float64, the same weights each time, none of which is zero: else little would be seen of
/// gradients behind it.
inline Sequence float64_model(const Family& family) {
  torch::manual_seed(5);
  Sequence model = family.make(false);
  const torch::NoGradGuard no_grad;
  for (const Layer& layer : model.layers()) {
    layer.module->to(torch::kFloat64);
    for (auto& parameter : layer.module->parameters())
      parameter.add_(torch::randn_like(parameter), 0.05);
  }
  return model;
}

inline Batch seeded_batch(const Family& family, int rows, int step = 0) {
  torch::manual_seed(100 + step);
  return family.batch(rows);
}

}  // namespace pipewright
