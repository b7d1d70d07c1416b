#pragma once

#include <fmt/format.h>

#include "tests/train/test_models.h"

namespace pipewright {

/// A training with delayed gradients.
struct Delayed {
  Strategy strategy = {};
  OptimizerFactory optimizer = sgd();
  int steps = 20;
  int rows = 11;
  int drain_every = 0;  // mini-batches; 0: at the end
  int replicas = 1;     // each with micro-batches of its own, at the same time

  int rows_at(int step) const { return step == 2 ? rows - 4 : rows; }
};

using State = std::map<std::string, torch::Tensor>;

/// On one device, by definition: every stage has all versions that its weights ever had, a
/// micro-batch uses of each the one that the schedule says, and an update is of the newest.
class ByDefinition {
 public:
  ByDefinition(const Delayed& delayed, const Features& features)
      : delayed_(delayed), features_(features), model_(make_model(features)) {
    Trainer trainer(make_model(features), cross_entropy(), delayed.optimizer, delayed.strategy);
    std::size_t layer = 0;
    for (std::size_t stage = 0; stage < trainer.sizes().size(); ++stage) {
      versions_.emplace_back();
      for (int i = 0; i < trainer.sizes()[stage]; ++i) stage_of_.push_back(stage), ++layer;
    }
    Parameters all;
    all.named = model_.named_parameters();
    std::erase_if(all.named, [](const auto& item) { return !item.second.requires_grad(); });
    optimizer_ = delayed.optimizer(all);
    keep_version();
  }

  State train() {
    for (int step = 0; step < delayed_.steps; ++step) {
      if (delayed_.drain_every > 0 && step % delayed_.drain_every == 0) drained();
      train_mini_batch(step);
    }
    set_newest();
    State state;
    for (const auto& [name, parameter] : model_.named_parameters())
      state[name] = parameter.detach();
    return state;
  }

 private:
  /// The pipeline is empty: what follows starts with the newest weights.
  void drained() {
    first_update_ = num_updates_;
    num_micro_batches_ = 0;
    last_of_update_.clear();
  }

  /// Which version of its weights a stage uses for the micro-batch `g` since the last drain.
  int version(std::size_t stage, int g) const {
    const std::string& schedule = delayed_.strategy.schedule;
    if (schedule.ends_with("pipedream-2bw")) {
      const auto before = std::count_if(last_of_update_.begin(), last_of_update_.end(),
                                        [&](int last) { return last < g; });
      return first_update_ + std::max(static_cast<int>(before) - 1, 0);
    }
    // A stage runs the backward of a micro-batch when it has run as many forwards more as there are
    // stages behind it; with a reserve, twice as many.
    const int s = delayed_.strategy.vertical_sync ? 0 : static_cast<int>(stage);
    const int ahead = (schedule.starts_with("eager-") ? 2 : 1) * (delayed_.strategy.ranks - 1 - s);
    const auto done = std::count_if(last_of_update_.begin(), last_of_update_.end(),
                                    [&](int last) { return last + ahead < g; });
    return first_update_ + static_cast<int>(done);
  }

  void train_mini_batch(int step) {
    const int rows = delayed_.rows_at(step);
    const Batch batch = make_batch(rows, step, features_);
    const int each = std::min(delayed_.strategy.micro_batches, rows / delayed_.replicas);
    const auto xs = batch.inputs[0].tensor_split(each * delayed_.replicas);
    const auto ys = batch.targets[0].tensor_split(each * delayed_.replicas);
    for (int m = 0; m < each * delayed_.replicas; ++m) {
      set_versions(num_micro_batches_ + m % each);
      const AutocastScope autocast(torch::kCPU, delayed_.strategy.precision);
      const auto outputs = plain_forward(model_, {xs[static_cast<std::size_t>(m)]}, step, m);
      const LossValue loss = cross_entropy().value(outputs, {ys[static_cast<std::size_t>(m)]});
      (loss.sum / static_cast<double>(rows)).backward();
      if (m % each == each - 1) add_gradients(m / each);
    }
    num_micro_batches_ += each;
    if ((step + 1) % delayed_.strategy.merge_steps == 0) update();
  }

  /// To what the replica has of the steps before.
  void add_gradients(int replica) {
    const torch::NoGradGuard no_grad;
    auto& sums = gradients_[replica];
    for (auto& parameter : optimizer_->param_groups()[0].params()) {
      torch::Tensor& sum = sums[parameter.unsafeGetTensorImpl()];
      if (delayed_.replicas == 1) continue;  // they are where they belong
      sum = sum.defined() ? sum + parameter.grad() : parameter.grad().clone();
      parameter.mutable_grad() = torch::Tensor();
    }
  }

  void update() {
    last_of_update_.push_back(num_micro_batches_ - 1);
    ++num_updates_;
    set_newest();
    const torch::NoGradGuard no_grad;
    for (auto& parameter : optimizer_->param_groups()[0].params()) {
      for (auto& [replica, sums] : gradients_) {
        const torch::Tensor sum =
            std::exchange(sums[parameter.unsafeGetTensorImpl()], torch::Tensor());
        if (!sum.defined()) continue;
        parameter.mutable_grad() = parameter.grad().defined() ? parameter.grad() + sum : sum;
      }
      if (delayed_.strategy.merge_steps > 1)
        parameter.mutable_grad().mul_(1.0 / delayed_.strategy.merge_steps);
    }
    optimizer_->step();
    optimizer_->zero_grad();
    keep_version();
  }

  void keep_version() {
    for (auto& versions : versions_) versions.emplace_back();
    for (std::size_t i = 0; i < model_.size(); ++i) {
      if (!model_.layers()[i].module) continue;
      for (const auto& parameter : model_.layers()[i].module->parameters())
        versions_[stage_of_[i]].back().push_back(parameter.detach().clone());
    }
  }

  void set_versions(int micro_batch) {
    set([&](std::size_t stage) { return static_cast<std::size_t>(version(stage, micro_batch)); });
  }
  void set_newest() {
    set([&](std::size_t stage) { return versions_[stage].size() - 1; });
  }

  template <typename VersionOf>
  void set(const VersionOf& version_of) {
    const torch::NoGradGuard no_grad;
    std::vector<std::size_t> next(versions_.size());
    for (std::size_t i = 0; i < model_.size(); ++i) {
      if (!model_.layers()[i].module) continue;
      const std::size_t stage = stage_of_[i];
      for (auto& parameter : model_.layers()[i].module->parameters())
        parameter.copy_(versions_[stage][version_of(stage)][next[stage]++]);
    }
  }

  Delayed delayed_;
  Features features_;
  Sequence model_;
  std::vector<std::size_t> stage_of_;           // by layer
  std::vector<std::vector<Tensors>> versions_;  // by stage, by version
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::map<int, std::map<void*, torch::Tensor>> gradients_;  // by replica, by parameter
  int num_updates_ = 0;
  int first_update_ = 0;             // since the last drain
  int num_micro_batches_ = 0;        // likewise
  std::vector<int> last_of_update_;  // its last micro-batch, likewise
};

inline State train_by_definition(const Delayed& delayed, const Features& features) {
  return ByDefinition(delayed, features).train();
}

inline State train_over_pipeline(const Delayed& delayed, const Features& features) {
  Trainer trainer(make_model(features), cross_entropy(), delayed.optimizer, delayed.strategy);
  for (int step = 0; step < delayed.steps; ++step) {
    if (delayed.drain_every > 0 && step % delayed.drain_every == 0) trainer.drain();
    trainer.step(make_batch(delayed.rows_at(step), step, features));
  }
  State state;
  for (const auto& [name, tensor] : trainer.state_dict()) state[name] = tensor.detach().clone();
  return state;
}

}  // namespace pipewright
