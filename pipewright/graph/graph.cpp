#include "pipewright/graph/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <unordered_set>

#include "pipewright/base/error.h"
#include "pipewright/base/words.h"
#include "pipewright/graph/flatten.h"

namespace jit = torch::jit;

namespace pipewright {

struct Graph::State {
  State(jit::Module of, FlatGraph made)
      : module(std::move(of)), flat(std::move(made)), code(flat.ir, "forward") {}

  jit::Module module;
  FlatGraph flat;
  jit::Code code;
};

Graph Graph::from(jit::Module module, const std::string& method) {
  FlatGraph flat = flatten(module, method);
  return Graph(std::make_shared<State>(std::move(module), std::move(flat)));
}

const std::vector<std::string>& Graph::input_names() const { return state_->flat.inputs; }

std::size_t Graph::num_outputs() const { return state_->flat.ir->outputs().size(); }

namespace {

std::vector<GraphAttribute> of_kind(const std::vector<GraphAttribute>& all,
                                    GraphAttribute::Kind kind) {
  std::vector<GraphAttribute> result;
  std::copy_if(all.begin(), all.end(), std::back_inserter(result),
               [&](const GraphAttribute& attribute) { return attribute.kind == kind; });
  return result;
}

}  // namespace

std::vector<GraphAttribute> Graph::parameters() const {
  return of_kind(state_->flat.attributes, GraphAttribute::Kind::kParameter);
}

std::vector<GraphAttribute> Graph::buffers() const {
  return of_kind(state_->flat.attributes, GraphAttribute::Kind::kBuffer);
}

std::vector<std::string> Graph::unused_parameters() const {
  std::unordered_set<const void*> used;
  for (const GraphAttribute& parameter : parameters())
    used.insert(parameter.tensor.unsafeGetTensorImpl());
  std::vector<std::string> unused;
  for (const auto& parameter : state_->module.named_parameters()) {
    if (!used.contains(parameter.value.unsafeGetTensorImpl())) unused.push_back(parameter.name);
  }
  return unused;
}

Tensors Graph::forward(const Tensors& inputs) const {
  if (inputs.size() != input_names().size()) {
    throw InvalidArgument("graph",
                          fmt::format("forward got {} tensors, but takes {}: {}", inputs.size(),
                                      input_names().size(), fmt::join(input_names(), ", ")));
  }
  jit::Stack stack(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < attributes().size(); ++i) {
    const GraphAttribute& attribute = attributes()[i];
    if (attribute.kind == GraphAttribute::Kind::kMode) {
      stack.emplace_back(mode(i));
    } else {
      stack.emplace_back(attribute.tensor);
    }
  }
  jit::InterpreterState(state_->code).run(stack);
  Tensors outputs;
  for (const c10::IValue& value : stack) outputs.push_back(value.toTensor());
  return outputs;
}

void Graph::train(bool on) { state_->module.train(on); }

void Graph::to(torch::ScalarType dtype) { state_->module.to(dtype); }

void Graph::to(torch::Device device) { state_->module.to(device); }

void Graph::save(const std::string& path) const {
  try {
    state_->module.save(path);
  } catch (const std::exception& error) {
    throw InvalidArgument("graph",
                          fmt::format("cannot write '{}': {}; check the folder and its space", path,
                                      first_line(error.what())));
  }
}

const jit::Module& Graph::module() const { return state_->module; }

const std::shared_ptr<jit::Graph>& Graph::ir() const { return state_->flat.ir; }

const std::vector<GraphAttribute>& Graph::attributes() const { return state_->flat.attributes; }

const std::vector<GraphNorm>& Graph::norms() const { return state_->flat.norms; }

bool Graph::mode(std::size_t index) const {
  return state_->flat.owners[index].attr("training").toBool();
}

jit::Value* Graph::value_of(std::size_t attribute) const {
  return state_->flat.ir->inputs().at(state_->flat.inputs.size() + attribute);
}

std::optional<std::size_t> Graph::attribute_of(const jit::Value* value) const {
  if (value->node() != state_->flat.ir->param_node()) return std::nullopt;
  if (value->offset() < state_->flat.inputs.size()) return std::nullopt;
  return value->offset() - state_->flat.inputs.size();
}

}  // namespace pipewright
