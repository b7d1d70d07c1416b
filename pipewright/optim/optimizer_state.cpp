#include "pipewright/optim/optimizer_state.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <set>
#include <typeinfo>

#include "pipewright/base/error.h"
#include "pipewright/torch/compat.h"

namespace pipewright {
namespace {

using torch::optim::OptimizerParamState;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

const compat::Optional<torch::Device> kAsSaved;  // tensors on the devices they were on

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("checkpoint", why); }

/// `expected`: about how many there will be; growing would copy them again and again.
std::string bytes_of(OutputArchive& archive, std::size_t expected) {
  std::string bytes;
  bytes.reserve(expected);
  archive.save_to([&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  return bytes;
}

PackedState pack(const OptimizerParamState& state, const torch::Tensor& parameter) {
  constexpr std::size_t kOfMost = 2;  // moments, as Adam's
  constexpr std::size_t kHeads = 1 << 14;
  OutputArchive archive;
  state.serialize(archive);
  return {type_of(state), bytes_of(archive, kOfMost * parameter.nbytes() + kHeads)};
}

torch::Tensor tensor_of(const c10::IValue& value, const std::string& what) {
  if (value.isTensor()) return value.toTensor().detach().contiguous();
  if (value.isInt()) return torch::scalar_tensor(value.toInt(), torch::kInt64);
  if (value.isDouble()) return torch::scalar_tensor(value.toDouble(), torch::kFloat64);
  if (value.isBool()) return torch::scalar_tensor(value.toBool(), torch::kBool);
  refuse(fmt::format("{} is a {}; files hold tensors and numbers", what, value.tagKind()));
}

/// As unpack_state(), but each value as it is.
std::map<std::string, c10::IValue> values_of(const PackedState& packed,
                                             compat::Optional<torch::Device> device) {
  InputArchive archive;
  archive.load_from(packed.archive.data(), packed.archive.size(), device);
  std::map<std::string, c10::IValue> values;
  for (const std::string& key : archive.keys()) archive.read(key, values[key]);
  return values;
}

/// In the form, and the place, of what a state of its class has under the same name.
c10::IValue value_like(const c10::IValue& example, const torch::Tensor& tensor) {
  if (example.isInt()) return tensor.item<std::int64_t>();
  if (example.isDouble()) return tensor.item<double>();
  if (example.isBool()) return tensor.item<bool>();
  torch::Tensor placed = torch::empty_like(example.toTensor());
  placed.copy_(tensor);
  return placed;
}

void check_like(const std::string& what, const c10::IValue& example, const torch::Tensor& tensor) {
  const torch::Tensor expected = tensor_of(example, what);
  if (tensor.sizes() == expected.sizes() && tensor.scalar_type() == expected.scalar_type()) return;
  refuse(fmt::format("the optimizer's {} is {} {}, in the checkpoint {} {}", what,
                     c10::toString(expected.scalar_type()), expected.sizes().vec(),
                     c10::toString(tensor.scalar_type()), tensor.sizes().vec()));
}

/// What the factory's optimizer keeps for such a parameter, before or after its first step.
OptimizerState example_state(const OptimizerFactory& factory, const std::string& name,
                             const torch::Tensor& parameter, bool with_step) {
  torch::Tensor copy = torch::zeros_like(parameter.detach());
  copy.requires_grad_(true);
  copy.mutable_grad() = torch::zeros_like(copy);
  Parameters alone;
  alone.named.emplace_back(name, copy);
  const auto optimizer = factory(alone);
  if (optimizer == nullptr) return nullptr;
  if (with_step) optimizer->step();
  auto& states = optimizer->state();
  const auto found = states.find(compat::optimizer_key(copy));
  return found == states.end() ? nullptr : std::move(found->second);
}

std::set<std::string> keys_of(const auto& map) {
  std::set<std::string> keys;
  for (const auto& [key, value] : map) keys.insert(key);
  return keys;
}

}  // namespace

std::string type_of(const OptimizerParamState& state) {
  const char* mangled = typeid(state).name();
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr), &std::free);
  return name ? name.get() : mangled;
}

std::optional<PackedState> pack_state(const torch::optim::Optimizer& optimizer,
                                      const torch::Tensor& parameter) {
  const auto& states = optimizer.state();
  const auto found = states.find(compat::optimizer_key(parameter));
  if (found == states.end() || found->second == nullptr) return std::nullopt;
  return pack(*found->second, parameter);
}

StateTensors unpack_state(const PackedState& packed, const std::string& parameter) {
  StateTensors tensors;
  for (const auto& [key, value] : values_of(packed, torch::Device(torch::kCPU))) {
    if (key.find('/') != std::string::npos)
      refuse(fmt::format("the optimizer's '{}' of '{}' has a '/' in its name", key, parameter));
    tensors[key] = tensor_of(
        value, fmt::format("the optimizer's '{}' of '{}', a {},", key, parameter, packed.type));
  }
  return tensors;
}

OptimizerState make_state(const OptimizerFactory& factory, const std::string& name,
                          const torch::Tensor& parameter, const StateTensors& tensors) {
  OptimizerState state = example_state(factory, name, parameter, true);
  if (state == nullptr) {
    refuse(
        fmt::format("for '{}' the checkpoint has the optimizer's {}, the optimizer keeps "
                    "nothing; use the optimizer it was saved with",
                    name, fmt::join(keys_of(tensors), ", ")));
  }
  const auto examples = values_of(pack(*state, parameter), kAsSaved);
  OutputArchive filled;
  for (const auto& [key, tensor] : tensors) {
    const auto example = examples.find(key);
    if (example == examples.end()) {  // made in a later step than the first, or not of this class
      filled.write(key, c10::IValue(tensor.to(parameter.device())));
    } else {
      check_like(fmt::format("'{}' of '{}'", key, name), example->second, tensor);
      filled.write(key, value_like(example->second, tensor));
    }
  }
  const std::string bytes = bytes_of(filled, 0);
  InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  state->serialize(archive);
  const auto kept = keys_of(values_of(pack(*state, parameter), kAsSaved));
  if (kept != keys_of(tensors)) {
    refuse(fmt::format(
        "for '{}' the optimizer keeps {} ({}), the checkpoint has {}; use the "
        "optimizer it was saved with, with the same options",
        name, fmt::join(kept, ", "), type_of(*state), fmt::join(keys_of(tensors), ", ")));
  }
  return state;
}

OptimizerState first_state(const OptimizerFactory& factory, const std::string& name,
                           const torch::Tensor& parameter) {
  return example_state(factory, name, parameter, false);
}

std::string state_type(const OptimizerFactory& factory, const std::string& name,
                       const torch::Tensor& parameter) {
  const OptimizerState state = example_state(factory, name, parameter, true);
  return state == nullptr ? "" : type_of(*state);
}

void set_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
               OptimizerState state) {
  auto& states = optimizer.state();
  if (state == nullptr) {
    states.erase(compat::optimizer_key(parameter));
  } else {
    states[compat::optimizer_key(parameter)] = std::move(state);
  }
}

}  // namespace pipewright
