#include <fmt/format.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>

#include "pipewright/base/error.h"
#include "pipewright/graph/graph.h"

namespace jit = torch::jit;

namespace pipewright {
namespace {

/// A TorchScript module with the same tensors under the same names.
jit::Module mirror(const torch::nn::Module& module, const std::string& name,
                   const std::shared_ptr<jit::CompilationUnit>& unit) {
  jit::Module made(c10::QualifiedName("__torch__." + name), unit, /*shouldMangle=*/true);
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    made.register_parameter(item.key(), item.value(), /*is_buffer=*/false);
  for (const auto& item : module.named_buffers(/*recurse=*/false))
    made.register_buffer(item.key(), item.value());
  for (const auto& child : module.named_children())
    made.register_module(child.key(), mirror(*child.value(), "Traced", unit));
  made.register_attribute("training", c10::BoolType::get(), module.is_training());
  return made;
}

}  // namespace

Graph Graph::trace(torch::nn::Module& module, const std::function<Tensors(const Tensors&)>& forward,
                   const Tensors& inputs) {
  const auto unit = std::make_shared<jit::CompilationUnit>();
  jit::Module made = mirror(module, "Traced", unit);
  const auto run = [&](jit::Stack stack) {
    Tensors tensors;
    for (const c10::IValue& value : stack) tensors.push_back(value.toTensor());
    const Tensors outputs = forward(tensors);
    if (outputs.empty()) throw InvalidArgument("graph", "the traced function returned no tensor");
    return jit::Stack{outputs.begin(), outputs.end()};
  };
  const auto no_names = [](const torch::Tensor&) { return std::string(); };
  auto [state, outputs] =
      jit::tracer::trace(jit::Stack(inputs.begin(), inputs.end()), run, no_names,
                         /*strict=*/true, /*force_outplace=*/false, &made);
  // A method has one output.
  if (state->graph->outputs().size() > 1) {
    const auto all = state->graph->outputs().vec();
    jit::Node* tuple = state->graph->createTuple(all);
    state->graph->appendNode(tuple);
    while (!state->graph->outputs().empty()) state->graph->eraseOutput(0);
    state->graph->registerOutput(tuple->output());
  }
  jit::Function* function = unit->create_function(
      c10::QualifiedName(*made.type()->name(), "forward"), state->graph, /*shouldMangle=*/true);
  made.type()->addMethod(function);
  return from(std::move(made));
}

}  // namespace pipewright
