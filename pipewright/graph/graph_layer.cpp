#include "pipewright/graph/graph_layer.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <map>

#include "pipewright/base/error.h"

namespace jit = torch::jit;

namespace pipewright {
namespace {

/// "encoder.0.weight" -> {"encoder.0", "weight"}
std::pair<std::string, std::string> split_name(const std::string& name) {
  const auto dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

c10::IValue from_tensor(const torch::Tensor& tensor, c10::TypeKind type) {
  switch (type) {
    case c10::TypeKind::IntType: return tensor.item<std::int64_t>();
    case c10::TypeKind::FloatType: return tensor.item<double>();
    case c10::TypeKind::BoolType: return tensor.item<bool>();
    default: return tensor;
  }
}

torch::Tensor to_tensor(const c10::IValue& value) {
  if (value.isInt()) return torch::tensor(value.toInt(), torch::kLong);
  if (value.isDouble()) return torch::tensor(value.toDouble(), torch::kDouble);
  if (value.isBool()) return torch::tensor(value.toBool(), torch::kBool);
  return value.toTensor();
}

}  // namespace

GraphLayer::GraphLayer(const Graph& graph, Subgraph nodes, const std::vector<jit::Value*>& inputs)
    : torch::nn::Module("GraphLayer"), nodes_(std::move(nodes)), num_inputs_(inputs.size()) {
  for (const jit::Value* value : nodes_.inputs()) {
    if (const auto attribute = graph.attribute_of(value)) {
      sources_.push_back(bind(graph, *attribute));
      continue;
    }
    const auto found = std::find(inputs.begin(), inputs.end(), value);
    internal_check(found != inputs.end(), "a layer is given what its nodes take");
    sources_.push_back({static_cast<std::size_t>(found - inputs.begin()), value->type()->kind()});
  }
  add_counters(graph);
  std::map<std::string, bool> modes;  // outer modules before inner ones, which get their own
  for (const jit::Value* value : nodes_.inputs()) {
    const auto attribute = graph.attribute_of(value);
    if (attribute && graph.attributes()[*attribute].kind == GraphAttribute::Kind::kMode)
      modes[split_name(graph.attributes()[*attribute].name).first] = graph.mode(*attribute);
  }
  for (const auto& [path, training] : modes) submodule(path).train(training);
}

GraphLayer::Source GraphLayer::bind(const Graph& graph, std::size_t attribute) {
  const GraphAttribute& found = graph.attributes()[attribute];
  const auto [path, name] = split_name(found.name);
  Source source;
  if (found.kind == GraphAttribute::Kind::kMode) {
    source.mode = &submodule(path);
    return source;
  }
  torch::nn::Module& owner = submodule(path);
  if (found.kind == GraphAttribute::Kind::kParameter) {
    owner.register_parameter(name, found.tensor, found.tensor.requires_grad());
  } else {
    owner.register_buffer(name, found.tensor);
  }
  source.tensor = found.tensor;
  return source;
}

torch::nn::Module& GraphLayer::submodule(const std::string& path) {
  torch::nn::Module* module = this;
  if (path.empty()) return *module;
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find('.', start), path.size());
    const std::string name = path.substr(start, end - start);
    const auto children = module->named_children();
    const auto* found = children.find(name);
    module = found != nullptr
                 ? found->get()
                 : module->register_module(name, std::make_shared<torch::nn::Module>(name)).get();
    start = end + 1;
  }
  return *module;
}

/// A stock batch norm that is never called: DeferredBatchNorm finds counter and momentum in it.
void GraphLayer::add_counters(const Graph& graph) {
  int number = 0;
  for (const GraphNorm& norm : graph.norms()) {
    const torch::Tensor& mean = graph.attributes()[norm.running_mean].tensor;
    const bool used = std::any_of(sources_.begin(), sources_.end(), [&](const Source& source) {
      return source.tensor.is_same(mean);
    });
    if (!used) continue;
    auto options = torch::nn::BatchNormOptions(mean.numel()).momentum(norm.momentum);
    auto counter = std::make_shared<torch::nn::BatchNorm1dImpl>(
        options.affine(false).track_running_stats(false));
    counter->running_mean = mean;
    counter->running_var = graph.attributes()[norm.running_var].tensor;
    counter->num_batches_tracked = graph.attributes()[norm.counter].tensor;
    const auto [path, name] = split_name(graph.attributes()[norm.counter].name);
    // So that it is saved, and moved, with the rest.
    submodule(path).register_buffer(name, counter->num_batches_tracked);
    register_module(fmt::format("norm_counter_{}", number++), counter);
  }
}

Tensors GraphLayer::forward(const Tensors& x) {
  if (x.size() != num_inputs_) {
    throw InvalidArgument(
        "graph",
        fmt::format("a layer of a cut graph got {} tensors, but takes {}", x.size(), num_inputs_));
  }
  std::vector<c10::IValue> values;
  for (const Source& source : sources_) {
    if (source.mode != nullptr) {
      values.emplace_back(source.mode->is_training());
    } else {
      values.push_back(source.tensor.defined() ? c10::IValue(source.tensor)
                                               : from_tensor(x[source.input], source.type));
    }
  }
  Tensors outputs;
  for (const c10::IValue& value : nodes_.run(std::move(values))) {
    torch::Tensor tensor = to_tensor(value);
    const bool passed_on = std::any_of(
        x.begin(), x.end(), [&](const torch::Tensor& input) { return input.is_same(tensor); });
    outputs.push_back(passed_on ? tensor.alias() : std::move(tensor));
  }
  return outputs;
}

}  // namespace pipewright
