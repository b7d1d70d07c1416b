#include "pipewright/graph/subgraph.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <unordered_map>

namespace jit = torch::jit;

namespace pipewright {

struct Subgraph::Program {
  jit::Code code;
};

Subgraph::Subgraph(const std::vector<jit::Node*>& nodes, const std::vector<jit::Value*>& outputs,
                   const std::string& name)
    : ir_(std::make_shared<jit::Graph>()) {
  std::unordered_map<jit::Value*, jit::Value*> copies;
  std::function<jit::Value*(jit::Value*)> copy_of = [&](jit::Value* value) {
    const auto found = copies.find(value);
    if (found != copies.end()) return found->second;
    jit::Value* copy = nullptr;
    if (value->node()->kind() == c10::prim::Constant) {
      jit::Node* constant = ir_->createClone(value->node(), copy_of);
      ir_->prependNode(constant);
      copy = constant->output();
    } else {
      copy = ir_->addInput()->copyMetadata(value);
      inputs_.push_back(value);
    }
    copies[value] = copy;
    return copy;
  };
  for (jit::Node* node : nodes) {
    jit::Node* copy = ir_->appendNode(ir_->createClone(node, copy_of));
    for (std::size_t i = 0; i < node->outputs().size(); ++i)
      copies[node->output(i)] = copy->output(i);
  }
  for (jit::Value* output : outputs) ir_->registerOutput(copy_of(output));
  program_ = std::make_shared<Program>(Program{jit::Code(ir_, name)});
}

std::vector<c10::IValue> Subgraph::run(std::vector<c10::IValue> inputs) const {
  jit::InterpreterState(program_->code).run(inputs);
  return inputs;
}

}  // namespace pipewright
