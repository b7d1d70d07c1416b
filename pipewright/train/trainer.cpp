#include "pipewright/train/trainer.h"

#include "pipewright/base/error.h"
#include "pipewright/train/checkpoints.h"
#include "pipewright/train/training.h"

namespace pipewright {
namespace {

void check_targets(const Batch& batch) {
  if (batch.targets.empty()) throw InvalidArgument("trainer", "the batch has no targets");
}

/// Puts a model into eval mode, and back as it was, module by module.
class EvalMode {
 public:
  explicit EvalMode(const Sequence& model) {
    for (const Layer& layer : model.layers()) {
      if (!layer.module) continue;
      for (const auto& module : layer.module->modules())
        modes_.emplace_back(module, module->is_training());
    }
    for (auto& [module, training] : modes_) module->train(false);
  }
  ~EvalMode() {
    // Outer modules come first; train() passes its mode on, and the inner ones then get their own
    // back.
    for (auto& [module, training] : modes_) module->train(training);
  }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

}  // namespace

struct Trainer::Impl {
  Training training;
  std::vector<std::function<void(const StepResult&)>> callbacks;
  Checkpoints checkpoints{&training};
  Exchanges gatherings{training.grid().world, "gather",
                       std::chrono::duration<double>(training.strategy().deadline_seconds)};
};

Trainer::Trainer(Sequence model, Loss loss, const OptimizerFactory& optimizer, Strategy strategy)
    : impl_(new Impl{Training(std::move(model), std::move(loss), optimizer, std::move(strategy)),
                     {}}) {}

Trainer::~Trainer() = default;

StepResult Trainer::step(const Batch& batch) {
  check_targets(batch);
  Training& training = impl_->training;
  const StepKind kind = training.completes_merge() ? StepKind::kUpdate : StepKind::kMerge;
  const StepResult result =
      training.asynchronous() ? training.fly(batch, kind) : training.run(batch, kind);
  if (result.pending) return result;
  for (const auto& callback : impl_->callbacks) callback(result);
  return result;
}

std::vector<StepResult> Trainer::drain() {
  std::vector<StepResult> results = impl_->training.take_results();
  for (const StepResult& result : results) {
    for (const auto& callback : impl_->callbacks) callback(result);
  }
  return results;
}

StepResult Trainer::gradients(const Batch& batch) {
  check_targets(batch);
  return impl_->training.run(batch, StepKind::kGradients);
}

StepResult Trainer::evaluate(const Batch& batch) {
  check_targets(batch);
  impl_->training.drain();
  const EvalMode eval(model());
  StepResult result = impl_->training.run(batch, StepKind::kForward);
  impl_->training.take_outputs();
  return result;
}

Tensors Trainer::predict(const Tensors& inputs, const std::vector<char>& shared_inputs) {
  impl_->training.drain();
  const EvalMode eval(model());
  impl_->training.run({.inputs = inputs, .shared_inputs = shared_inputs}, StepKind::kForward);
  const std::vector<Tensors> parts = impl_->training.take_outputs();
  Tensors result;
  for (std::size_t i = 0; !parts.empty() && i < parts[0].size(); ++i) {
    Tensors pieces;
    for (const Tensors& part : parts) {
      pieces.push_back(part[i]);
      // The memory is another stream's, which may use it again while this one still reads.
      if (part[i].is_cuda()) part[i].record_stream(current_stream(part[i].device()));
    }
    result.push_back(torch::cat(pieces));
  }
  return impl_->training.share_outputs(std::move(result));
}

void Trainer::ask_to_stop() { impl_->training.ask_to_stop(); }

std::vector<nlohmann::json> Trainer::gather(const nlohmann::json& own) {
  Exchanges::Turn turn(&impl_->gatherings);
  return turn.exchange().together([&] { return own; });
}

void Trainer::after_step(std::function<void(const StepResult&)> callback) {
  impl_->callbacks.push_back(std::move(callback));
}

std::string Trainer::save(const std::string& dir, SaveOptions options) {
  impl_->training.drain();
  return impl_->checkpoints.save(dir, std::move(options));
}

void Trainer::wait_for_save() { impl_->checkpoints.wait(); }
Resumed Trainer::resume(const std::string& dir) {
  impl_->training.drain();
  return impl_->checkpoints.resume(dir);
}

Loaded Trainer::load_weights(const std::string& path, const LoadOptions& options) {
  impl_->training.drain();
  return impl_->checkpoints.load_weights(path, options);
}

void Trainer::save_weights(const std::string& path, const NamesInFile& names) {
  impl_->training.drain();
  impl_->checkpoints.save_weights(path, names);
}

const Sequence& Trainer::model() const { return impl_->training.model(); }
const std::vector<int>& Trainer::sizes() const { return impl_->training.sizes(); }
const std::vector<std::vector<Operation>>& Trainer::operations() const {
  return impl_->training.shared().recompute;
}
const std::vector<char>& Trainer::offload() const { return impl_->training.shared().offload; }
std::int64_t Trainer::num_steps() const { return impl_->training.num_steps(); }
std::int64_t Trainer::num_updates() const { return impl_->training.num_updates(); }

std::vector<torch::optim::Optimizer*> Trainer::optimizers() {
  impl_->training.drain();
  return impl_->training.updater().optimizers();
}

std::vector<std::pair<std::string, torch::Tensor>> Trainer::state_dict() const {
  impl_->training.drain();
  return impl_->training.state();
}

}  // namespace pipewright
