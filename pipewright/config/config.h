#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipewright/config/value.h"

namespace pipewright::config {

// What each key means, its range and when it counts is written in schema.cpp alone, from where
// docs/configuration.md is made. Here are the types and the defaults. 0 and "" mean "not set" where
// a thing may be left out.

struct Model {
  std::string name = {};
  std::string file = {};
  std::string weights = {};
  std::string export_to = {};
  Values parameters = {};  // all that the model declares, with its defaults

  bool operator==(const Model&) const = default;
};

struct Data {
  std::string name = {};
  std::string path = {};
  std::string validation_path = {};
  std::int64_t batch = 0;
  bool shuffle = true;
  std::int64_t workers = 1;
  std::int64_t prefetch = 2;
  Values parameters = {};  // all that the source declares, with its defaults

  bool operator==(const Data&) const = default;
};

struct Train {
  std::int64_t steps = 0;
  std::int64_t epochs = 0;
  std::string optimizer = "adamw";
  double lr = 1e-3;
  std::int64_t warmup = 0;
  std::string schedule = "constant";
  double schedule_floor = 0;
  std::int64_t schedule_every = 0;
  double schedule_factor = 0.1;
  double momentum = 0;
  std::vector<double> betas = {0.9, 0.999};
  double epsilon = 1e-8;
  double weight_decay = 0;
  double clip_norm = 0;
  std::string loss = {};
  bool check_finite = false;
  std::int64_t validate_every = 0;
  std::int64_t validate_batches = 0;
  std::int64_t early_stop = 0;
  double early_stop_margin = 0;

  bool operator==(const Train&) const = default;
};

struct Pipeline {
  std::int64_t ranks = 1;
  std::int64_t micro_batches = 1;
  std::string schedule = "1f1b";
  std::int64_t chunks = 0;
  bool vertical_sync = false;
  std::string partition = "time";
  std::vector<std::int64_t> sizes = {};
  std::vector<std::string> devices = {};
  std::string transport = "threads";
  std::int64_t threads_per_rank = 0;
  bool pin = true;
  double deadline_seconds = 300;
  double life_deadline_seconds = 30;
  std::string address = {};
  bool shared_memory = true;

  bool operator==(const Pipeline&) const = default;
};

struct Recompute {
  std::string mode = "none";
  std::int64_t every = 1;
  std::vector<std::string> checkpoints = {};
  std::int64_t budget = 0;  // bytes
  bool offload = false;

  bool operator==(const Recompute&) const = default;
};

struct GradientMerge {
  std::int64_t steps = 1;
  bool average = true;

  bool operator==(const GradientMerge&) const = default;
};

struct Amp {
  std::string dtype = "off";
  double init_scale = 32768;
  double growth = 2;
  std::int64_t growth_interval = 1000;
  double backoff = 0.5;
  std::int64_t backoff_interval = 2;

  bool operator==(const Amp&) const = default;
};

struct DataParallel {
  std::int64_t replicas = 1;
  bool shard_optimizer = false;

  bool operator==(const DataParallel&) const = default;
};

struct AutoMicroBatch {
  std::int64_t num = 1;  // 0: chosen by measuring
  std::int64_t lanes = 0;
  std::string batch = "whole";

  bool operator==(const AutoMicroBatch&) const = default;
};

struct Checkpoint {
  std::int64_t every = 0;
  std::int64_t keep = 3;
  bool keep_best = true;
  std::string dir = {};

  bool operator==(const Checkpoint&) const = default;
};

struct Log {
  std::string dir = {};
  std::int64_t every = 10;
  bool tensorboard = false;
  bool trace = true;

  bool operator==(const Log&) const = default;
};

/// How a model is trained, as a file says it. read() of read.h makes one that was checked.
struct Config {
  std::int64_t seed = 1;
  Model model = {};
  Data data = {};
  Train train = {};
  Pipeline pipeline = {};
  Recompute recompute = {};
  GradientMerge gradient_merge = {};
  Amp amp = {};
  DataParallel data_parallel = {};
  AutoMicroBatch auto_micro_batch = {};
  Checkpoint checkpoint = {};
  Log log = {};

  bool operator==(const Config&) const = default;
};

}  // namespace pipewright::config
