#pragma once

#include <string>
#include <vector>

#include "pipewright/checkpoint/reader.h"
#include "tests/checkpoint/sample.h"
#include "tests/train/test_models.h"

namespace pipewright {

inline constexpr Features kAllFeatures = {.skips = true,
                                          .tied = true,
                                          .batch_norm = true,
                                          .dropout = true,
                                          .masked = true,
                                          .frozen = true};

/// The test model in another precision, and with other weights than make_model()'s, so that what a
/// resume forgets is noticed.
inline Sequence make_other_model(const Features& f, torch::ScalarType type) {
  Sequence model = make_model(f);
  const torch::NoGradGuard no_grad;
  for (auto& [name, parameter] : model.named_parameters()) parameter.mul_(0.5).add_(0.01);
  for (const Layer& layer : model.layers()) {
    if (layer.module) layer.module->to(type);
  }
  return model;
}

inline Sequence make_model_of(const Features& f, torch::ScalarType type) {
  Sequence model = make_model(f);
  for (const Layer& layer : model.layers()) {
    if (layer.module) layer.module->to(type);
  }
  return model;
}

/// The files of a checkpoint but for checkpoint.json: every tensor's bits, whatever the partition.
inline std::vector<FileEntry> files_of(const std::string& path) {
  const Checkpoint checkpoint = open_checkpoint(path);
  checkpoint.verify();
  return checkpoint.files();
}

/// Steps `from` .. `to` of the one run that all these tests do.
inline double train(Trainer* trainer, int from, int to, const Features& f = kAllFeatures) {
  double loss = 0;
  for (int step = from; step < to; ++step) loss = trainer->step(make_batch(11, step, f)).loss;
  return loss;
}

}  // namespace pipewright
