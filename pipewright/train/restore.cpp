#include "pipewright/train/restore.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "pipewright/base/error.h"
#include "pipewright/train/run_state.h"
#include "pipewright/train/snapshot.h"
#include "pipewright/train/tensor_bytes.h"

namespace pipewright {
namespace {

using nlohmann::json;

/// "embed.weight/exp_avg": the parameter and what of it.
struct OptimizerName {
  std::string parameter;
  std::string what;
};

OptimizerName split_name(const std::string& name) {
  const auto at = name.rfind('/');
  if (at == std::string::npos) return {name, ""};
  return {name.substr(0, at), name.substr(at + 1)};
}

/// Every tensor of this process's layers.
std::vector<NamedTensor> tensors_here(Training* training) {
  std::vector<NamedTensor> all;
  for (std::size_t layer = 0; layer < training->model().size(); ++layer) {
    for (NamedTensor& named : training->tensor_names().of(training->model(), layer))
      all.push_back(std::move(named));
  }
  return all;
}

/// What the optimizer's part of a checkpoint has for parameters of this process.
Fit fit_optimizer(Training* training, const TensorSet& set) {
  std::map<std::string, torch::Tensor> first, uses;
  for (const NamedTensor& named : tensors_here(training)) {
    if (!named.is_parameter || !named.tensor.requires_grad()) continue;
    uses[named.own_name] = named.tensor;
    if (named.is_first()) first[named.name] = named.tensor;
  }
  Fit fit(set, {}, training->tensor_names(), true);
  for (const std::string& name : set.names()) {
    const auto [parameter, what] = split_name(name);
    if (what.starts_with(kMergedGradient)) {
      const auto use = uses.find(parameter);
      if (use != uses.end()) fit.look_for({name, name, use->second, true});
    } else if (first.contains(parameter)) {
      fit.knows(name);
    }
  }
  return fit;
}

/// A replica may have the optimizer of some parameters only.
std::set<const void*> optimized_by(const torch::optim::Optimizer* optimizer) {
  std::set<const void*> result;
  if (optimizer == nullptr) return result;
  for (const auto& group : optimizer->param_groups()) {
    for (const auto& parameter : group.params()) result.insert(parameter.unsafeGetTensorImpl());
  }
  return result;
}

/// The words of an error after "[where] ".
std::string without_place(const std::string& words) {
  const auto end = words.find("] ");
  return end == std::string::npos ? words : words.substr(end + 2);
}

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("checkpoint", why); }

void check_class(const std::vector<std::string>& saved, const std::string& own) {
  if (saved.empty() ? own.empty() : std::find(saved.begin(), saved.end(), own) != saved.end())
    return;
  refuse(fmt::format("it was saved with another optimizer: it has {}, this one keeps {}",
                     saved.empty() ? "nothing" : fmt::format("{}", fmt::join(saved, ", ")),
                     own.empty() ? "nothing" : own));
}

}  // namespace

void Restore::read_weights_here(const Fit& fit, const TensorSet& set) {
  for (const NamedTensor& named : tensors_here(training_)) {
    const NameInFile source = fit.source_of(named.name);
    if (source.empty()) continue;
    if (!weights_.contains(named.name)) weights_[named.name] = read_held(set, source);
    const NameInFile second = fit.second_source_of(named);
    if (second.empty() || read_held(set, second).equal(weights_[named.name])) continue;
    refuse(fmt::format("the model has one tensor for '{}' and '{}', the file has different ones",
                       fmt::join(source.parts, "', '"), fmt::join(second.parts, "', '")));
  }
}

Loaded Restore::read_weights(const TensorSet& set, const LoadOptions& options,
                             const std::string& path) {
  Fit fit(set, options, training_->tensor_names(), false);
  const auto found = exchange_->together([&] {
    for (const NamedTensor& named : tensors_here(training_)) fit.look_for(named);
    return fit.found();
  });
  const Fit::Misfits misfits = Fit::joined(found, set);
  refuse_misfits(misfits, options, path);
  exchange_->together([&] {
    read_weights_here(fit, set);
    return json();
  });
  return {misfits.missing, misfits.unexpected};
}

void Restore::read_checkpoint(const Checkpoint& checkpoint, std::vector<std::string>* notes) {
  is_whole_ = true;
  const TensorSet& weights = checkpoint.tensors(Part::kWeights);
  const TensorSet& optimizer = checkpoint.tensors(Part::kOptimizer);
  Fit fit(weights, {}, training_->tensor_names(), true);
  const auto found = exchange_->together([&] {
    position_ = parse_position(checkpoint.state(), checkpoint.path());
    for (const NamedTensor& named : tensors_here(training_)) fit.look_for(named);
    return json::array({fit.found(), fit_optimizer(training_, optimizer).found()});
  });
  std::vector<json> in_weights, in_optimizer;
  for (const json& one : found) {
    in_weights.push_back(one.at(0));
    in_optimizer.push_back(one.at(1));
  }
  refuse_misfits(Fit::joined(in_weights, weights), {}, checkpoint.path());
  refuse_misfits(Fit::joined(in_optimizer, optimizer), {}, checkpoint.path());
  check_position(checkpoint.path(), notes);
  const auto types = parse_state_types(checkpoint.state(), checkpoint.path());
  if (!training_->factory() && optimizer.size() > 0)
    notes->push_back("the checkpoint's optimizer state is not used: there is no optimizer");
  exchange_->together([&] {
    read_weights_here(fit, weights);
    try {
      read_optimizer(optimizer, types);
    } catch (const c10::Error& error) {  // of the optimizer, or of its state's class
      refuse(
          fmt::format("'{}' does not fit: {}", checkpoint.path(), error.what_without_backtrace()));
    } catch (const InvalidArgument& error) {
      refuse(fmt::format("'{}' does not fit: {}", checkpoint.path(), without_place(error.what())));
    }
    return json();
  });
}

void Restore::check_position(const std::string& path, std::vector<std::string>* notes) const {
  const Strategy& strategy = training_->strategy();
  if (position_.num_merged >= strategy.merge_steps) {
    refuse(fmt::format(
        "'{}' was saved after {} steps of a merge, but merge_steps = {}; use more than {}", path,
        position_.num_merged, strategy.merge_steps, position_.num_merged));
  }
  if (position_.seed != strategy.seed) {
    notes->push_back(fmt::format("the run goes on with its own seed, {}; seed = {} is not used",
                                 position_.seed, strategy.seed));
  }
  const bool scales = training_->position().scaler.has_value();
  if (position_.scaler && !scales)
    notes->push_back("the checkpoint's loss scale is not used: this run scales no loss");
  if (!position_.scaler && scales)
    notes->push_back("the checkpoint has no loss scale: it starts at init_scale");
}

void Restore::read_optimizer(const TensorSet& set, const std::vector<std::string>& types) {
  for (const NamedTensor& named : tensors_here(training_)) read_merged(set, named.own_name);
  states_.resize(training_->shared().layout.placement.size());
  if (!training_->factory()) return;
  // On the ranks' threads: what the states take is then charged to their stages.
  training_->pipeline().on_every_stage(
      [&](StageRunner& runner) { read_states(runner.stage(), set, types); });
}

/// With as many replicas as saved it each has its own back; else the first has what all had.
void Restore::read_merged(const TensorSet& set, const std::string& use) {
  const Grid& grid = training_->grid();
  for (int replica = 0; replica < position_.replicas; ++replica) {
    const std::string name = merged_gradient_name(use, replica);
    const bool is_here =
        position_.replicas == grid.replicas ? replica == grid.replica : grid.replica == 0;
    if (!is_here || !set.contains(name)) continue;
    torch::Tensor& sum = gradients_[use];
    sum = sum.defined() ? sum.add_(read_tensor(set, name)) : read_tensor(set, name);
  }
}

void Restore::read_states(int stage, const TensorSet& set, const std::vector<std::string>& types) {
  std::map<std::string, std::vector<std::string>> saved;  // what, by parameter
  for (const std::string& name : set.names()) {
    const auto [parameter, what] = split_name(name);
    if (!what.starts_with(kMergedGradient)) saved[parameter].push_back(what);
  }
  const OptimizerFactory& factory = training_->factory();
  const auto own = optimized_by(training_->updater().optimizers()[static_cast<std::size_t>(stage)]);
  bool is_first = true;
  for (const auto& [name, parameter] : training_->updater().parameters(stage).named) {
    if (!own.contains(parameter.unsafeGetTensorImpl())) continue;
    if (training_->tensor_names().aliases().contains(name)) continue;
    // An optimizer that keeps nothing leaves no trace: another one would start anew unnoticed.
    if (std::exchange(is_first, false) && (position_.num_updates > 0 || !types.empty()))
      check_class(types, state_type(factory, name, parameter));
    OptimizerState& state = states_[static_cast<std::size_t>(stage)][name];
    if (!saved.contains(name)) {
      state = first_state(factory, name, parameter);
      continue;
    }
    StateTensors tensors;
    {
      const MemoryScope outside(MemoryMeter::kOutside);
      for (const std::string& what : saved[name])
        tensors[what] = read_tensor(set, name + "/" + what);
    }
    state = make_state(factory, name, parameter, tensors);
    check_class(types, type_of(*state));
  }
}

void Restore::apply() {
  apply_weights();
  if (!is_whole_) return;
  training_->updater().clear_all();
  training_->pipeline().on_every_stage([&](StageRunner& runner) { apply_stage(runner.stage()); });
  training_->set_position(position_);
}

/// Here, not on the ranks' threads: two of them may share a tensor. Steps wait for this thread's
/// stream.
void Restore::apply_weights() const {
  const torch::NoGradGuard no_grad;
  std::set<std::string> done;
  for (const NamedTensor& named : tensors_here(training_)) {
    const auto found = weights_.find(named.name);
    if (found == weights_.end() || !done.insert(named.name).second) continue;
    torch::Tensor(named.tensor).detach().copy_(found->second);
  }
}

void Restore::apply_stage(int stage) {
  auto* optimizer = training_->updater().optimizers()[static_cast<std::size_t>(stage)];
  for (const auto& [name, parameter] : training_->updater().parameters(stage).named) {
    const auto found = states_[static_cast<std::size_t>(stage)].find(name);
    if (found != states_[static_cast<std::size_t>(stage)].end())
      set_state(*optimizer, parameter, std::move(found->second));
  }
  const SharedModel& shared = training_->shared();
  const auto& first = shared.layout.first_layer;
  const auto s = static_cast<std::size_t>(stage);
  for (std::size_t layer = first[s]; layer < first[s + 1]; ++layer) {
    for (const NamedTensor& named : training_->tensor_names().of(*shared.model, layer)) {
      const auto found = gradients_.find(named.own_name);
      if (found == gradients_.end()) continue;
      torch::Tensor gradient = torch::empty_like(named.tensor.detach()).copy_(found->second);
      TiedUse* use = find_tied_use(shared, layer, named.tensor);
      (use != nullptr ? use->gradient : named.tensor.mutable_grad()) = std::move(gradient);
    }
  }
}

}  // namespace pipewright
