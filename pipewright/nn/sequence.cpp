#include "pipewright/nn/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "pipewright/base/error.h"
#include "pipewright/nn/random.h"

namespace pipewright {
namespace {

/// Whether a stock module was made with inplace(true).
template <typename Module>
bool is_in_place(const torch::nn::Module& module) {
  const auto* typed = dynamic_cast<const Module*>(&module);
  return typed != nullptr && typed->options.inplace();
}

bool writes_into_its_input(const torch::nn::Module& module) {
  using namespace torch::nn;
  return is_in_place<ReLUImpl>(module) || is_in_place<ReLU6Impl>(module) ||
         is_in_place<ELUImpl>(module) || is_in_place<SELUImpl>(module) ||
         is_in_place<CELUImpl>(module) || is_in_place<LeakyReLUImpl>(module) ||
         is_in_place<RReLUImpl>(module) || is_in_place<HardtanhImpl>(module) ||
         is_in_place<ThresholdImpl>(module) || is_in_place<DropoutImpl>(module) ||
         is_in_place<Dropout2dImpl>(module) || is_in_place<Dropout3dImpl>(module) ||
         is_in_place<AlphaDropoutImpl>(module) || is_in_place<FeatureAlphaDropoutImpl>(module);
}

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("model", why); }

using Names = std::vector<std::string>;

/// All names that the layers stash, or all that they pop.
Names names_of(const std::vector<Layer>& layers, Names LayerOptions::*which) {
  Names all;
  for (const Layer& layer : layers) {
    const Names& names = layer.options.*which;
    all.insert(all.end(), names.begin(), names.end());
  }
  return all;
}

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_skips(const std::vector<Layer>& layers, const std::string& layer,
                 const LayerOptions& options) {
  Names stashed = names_of(layers, &LayerOptions::stash);
  Names popped = names_of(layers, &LayerOptions::pop);
  for (const std::string& name : options.pop) {
    if (!contains(stashed, name)) {
      refuse(fmt::format(
          "layer '{}' pops '{}', which no layer before it stashes; add .stash = {{\"{}\"}} to one",
          layer, name, name));
    }
    if (contains(popped, name)) {
      refuse(
          fmt::format("layer '{}' pops '{}', which was popped already; stash it once for each pop",
                      layer, name));
    }
    popped.push_back(name);
  }
  for (const std::string& name : options.stash) {
    if (contains(stashed, name)) {
      refuse(fmt::format("layer '{}' stashes '{}', which is stashed already; names must differ",
                         layer, name));
    }
    stashed.push_back(name);
  }
}

/// Where a parameter's name begins in `layer.name`: after the name of the longest layer that fits,
/// since both parts may have points in them. Throws where there is none.
std::pair<std::size_t, std::string> find_parameter(const std::vector<Layer>& layers,
                                                   const std::string& name) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string start = layers[i].name + ".";
    if (name.compare(0, start.size(), start) != 0) continue;
    if (!best || layers[i].name.size() > layers[*best].name.size()) best = i;
  }
  if (!best)
    refuse(fmt::format("a layer is tied to '{}', but no layer before it has that name", name));
  return {*best, name.substr(layers[*best].name.size() + 1)};
}

torch::Tensor parameter_of(const torch::nn::Module* module, const std::string& parameter,
                           const std::string& name) {
  if (module != nullptr) {
    const auto parameters = module->named_parameters();
    if (const auto* found = parameters.find(parameter)) return *found;
  }
  refuse(fmt::format("a layer is tied to '{}', but that layer has no parameter '{}'", name,
                     parameter));
}

/// For the seeds: the same on every machine.
std::int64_t name_number(const std::string& name) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return static_cast<std::int64_t>(hash);
}

}  // namespace

namespace detail {

void refuse_inputs(const std::string& layer, std::size_t given, std::size_t taken) {
  throw InvalidArgument(
      "model", fmt::format("layer '{}' got {} tensors, but its forward takes another number "
                           "(at most {}); check what the layer before returns",
                           layer, given, taken));
}

}  // namespace detail

Sequence& Sequence::add_function(std::string name,
                                 std::function<torch::Tensor(torch::Tensor)> function,
                                 LayerOptions options) {
  auto forward = [name, function = std::move(function)](const Tensors& x) {
    if (x.size() != 1) detail::refuse_inputs(name, x.size(), 1);
    return Tensors{function(x[0])};
  };
  return add_layer(std::move(name), std::move(forward), nullptr, std::move(options));
}

Sequence& Sequence::add_maker(std::string name, std::function<BuiltLayer(const Tensors&)> make,
                              LayerOptions options) {
  for (const std::string& tied : options.tied) find_parameter(layers_, tied);
  add_layer(std::move(name), nullptr, nullptr, std::move(options));
  layers_.back().make = std::move(make);
  return *this;
}

BuiltLayer Sequence::made(std::size_t layer, const Tensors& tied) const {
  const Layer& wanted = layers_[layer];
  const RandomScope scope({seed_, 0, 0, name_number(wanted.name)}, torch::kCPU);
  try {
    BuiltLayer built = wanted.make(tied);
    if (!built.module) refuse("its maker returned no module");
    return built;
  } catch (const std::exception& error) {
    refuse(fmt::format("layer '{}' cannot be made: {}", wanted.name, error.what()));
  }
}

/// A parameter that a later layer uses too; where its own layer is another process's, a copy.
torch::Tensor Sequence::tied_tensor(const std::string& name) {
  const auto [index, parameter] = find_parameter(layers_, name);
  build(index);
  const Layer& layer = layers_[index];
  if (layer.module) return parameter_of(layer.module.get(), parameter, name);
  if (!layer.make) parameter_of(nullptr, parameter, name);
  torch::Tensor& copy = tied_[name];
  if (copy.defined()) return copy;
  Tensors tied;
  for (const std::string& other : layer.options.tied) tied.push_back(tied_tensor(other));
  copy = parameter_of(made(index, tied).module.get(), parameter, name);
  return copy;
}

void Sequence::build(std::size_t layer) {
  Layer& wanted = layers_[layer];
  if (!wanted.make || wanted.module || wanted.elsewhere) return;
  Tensors tied;
  for (const std::string& name : wanted.options.tied) tied.push_back(tied_tensor(name));
  BuiltLayer built = made(layer, tied);
  if (writes_into_its_input(*built.module)) wanted.options.in_place = true;
  wanted.forward = std::move(built.forward);
  wanted.module = std::move(built.module);
}

void Sequence::build_all() {
  for (std::size_t i = 0; i < size(); ++i) build(i);
}

Sequence& Sequence::add_layer(std::string name, std::function<Tensors(const Tensors&)> forward,
                              std::shared_ptr<torch::nn::Module> module, LayerOptions options) {
  if (name.empty()) refuse("a layer needs a name");
  for (const Layer& layer : layers_) {
    if (layer.name == name)
      refuse(fmt::format("there is a layer '{}' already; names must differ", name));
  }
  check_skips(layers_, name, options);
  if (guard_stage_ && !layers_.empty() && layers_.back().stage &&
      *layers_.back().stage > *guard_stage_) {
    refuse(fmt::format("layer '{}' of stage {} follows one of stage {}; stages go up", name,
                       *guard_stage_, *layers_.back().stage));
  }
  if (module && writes_into_its_input(*module)) options.in_place = true;
  Layer layer;
  layer.name = std::move(name);
  layer.forward = std::move(forward);
  layer.module = std::move(module);
  layer.options = std::move(options);
  layer.stage = guard_stage_;
  layer.device = guard_device_;
  layers_.push_back(std::move(layer));
  return *this;
}

Sequence Sequence::from(const torch::nn::Sequential& modules) {
  Sequence sequence;
  const auto names = modules->named_children();
  std::size_t index = 0;
  for (auto any : *modules) {  // AnyModule shares ownership
    const std::string name = names[index++].key();
    auto forward = [name, any](const Tensors& x) mutable {
      if (x.size() == 1) return Tensors{any.forward<torch::Tensor>(x[0])};
      if (x.size() == 2) return Tensors{any.forward<torch::Tensor>(x[0], x[1])};
      detail::refuse_inputs(name, x.size(), 2);
    };
    sequence.add_layer(name, std::move(forward), any.ptr());
  }
  return sequence;
}

Sequence::StageGuard Sequence::stage(int stage, std::optional<torch::Device> device) {
  if (stage < 0) refuse(fmt::format("stage {} is negative", stage));
  if (guard_stage_)
    refuse(
        fmt::format("stage guards do not nest: stage {} is inside stage {}", stage, *guard_stage_));
  guard_stage_ = stage;
  guard_device_ = device;
  return StageGuard(this);
}

Sequence::StageGuard::~StageGuard() {
  if (sequence_ == nullptr) return;
  sequence_->guard_stage_.reset();
  sequence_->guard_device_.reset();
}

void Sequence::release(std::size_t layer) {
  layers_[layer].module = nullptr;
  layers_[layer].forward = nullptr;
  layers_[layer].elsewhere = true;
}

void Sequence::check() const {
  if (layers_.empty()) refuse("the model has no layers");
  const Names popped = names_of(layers_, &LayerOptions::pop);
  for (const std::string& name : names_of(layers_, &LayerOptions::stash)) {
    if (contains(popped, name)) continue;
    refuse(fmt::format(
        "'{}' is stashed, but no layer pops it; add .pop = {{\"{}\"}} or drop the stash", name,
        name));
  }
}

std::vector<std::pair<std::string, torch::Tensor>> Sequence::named_parameters() const {
  std::vector<std::pair<std::string, torch::Tensor>> result;
  std::unordered_set<const void*> seen;
  for (const Layer& layer : layers_) {
    if (!layer.module) continue;
    for (const auto& item : layer.module->named_parameters()) {
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      result.emplace_back(layer.name + "." + item.key(), item.value());
    }
  }
  return result;
}

std::vector<std::pair<std::string, torch::Tensor>> Sequence::named_buffers() const {
  std::vector<std::pair<std::string, torch::Tensor>> result;
  std::unordered_set<const void*> seen;
  for (const Layer& layer : layers_) {
    if (!layer.module) continue;
    for (const auto& item : layer.module->named_buffers()) {
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      result.emplace_back(layer.name + "." + item.key(), item.value());
    }
  }
  return result;
}

void Sequence::train(bool on) const {
  for (const Layer& layer : layers_) {
    if (layer.module) layer.module->train(on);
  }
}

}  // namespace pipewright
