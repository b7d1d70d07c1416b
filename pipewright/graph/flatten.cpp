#include "pipewright/graph/flatten.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

#include <map>
#include <tuple>
#include <unordered_map>

#include "pipewright/base/error.h"

namespace jit = torch::jit;

namespace pipewright {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("graph", why); }

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

/// What makes two tensors one parameter: the same elements of the same memory.
using Place = std::tuple<const void*, std::vector<std::int64_t>, std::vector<std::int64_t>>;

Place place_of(const torch::Tensor& tensor) {
  return {tensor.data_ptr(), tensor.sizes().vec(), tensor.strides().vec()};
}

/// Replaces every look at a module's attribute by an input or a constant.
class Lowering {
 public:
  explicit Lowering(FlatGraph* flat) : flat_(flat) {}

  /// In the order of the nodes, so that attributes come in the order in which they are read.
  void lower(const jit::Module& module) {
    modules_[flat_->ir->inputs()[0]] = {module, ""};
    lower_block(flat_->ir->block());
    for (auto it = looks_.rbegin(); it != looks_.rend(); ++it) (*it)->destroy();
  }

 private:
  using Key = std::pair<const c10::ivalue::Object*, std::string>;
  struct Owner {
    jit::Module module;
    std::string path;
  };

  void lower_block(jit::Block* block) {
    for (jit::Node* node : block->nodes()) {
      if (node->kind() == c10::prim::GetAttr && modules_.count(node->input()) > 0) {
        lower_attribute(node, modules_.at(node->input()));
        looks_.push_back(node);
      } else {
        check_uses_no_module(*node);
      }
      for (jit::Block* inner : node->blocks()) lower_block(inner);
    }
    check_uses_no_module(*block->return_node());
  }

  void check_uses_no_module(const jit::Node& node) const {
    for (const jit::Value* input : node.inputs()) {
      const auto found = modules_.find(input);
      if (found == modules_.end()) continue;
      const std::string& path = found->second.path;
      if (node.kind() == c10::prim::SetAttr) {
        refuse(
            fmt::format("{} writes the attribute '{}' during forward, so that a micro-batch would "
                        "see what another one left; make it an output, or a buffer",
                        describe(node), join(path, node.s(c10::attr::name))));
      }
      refuse(
          fmt::format("{} uses the module '{}' as a value, which cannot be inlined; call its "
                      "forward directly",
                      describe(node), path.empty() ? "self" : path));
    }
  }

  void lower_attribute(jit::Node* node, const Owner& owner) {
    const std::string name = node->s(c10::attr::name);
    const std::string path = join(owner.path, name);
    const c10::IValue value = owner.module.attr(name);
    if (value.isModule()) {
      modules_[node->output()] = {value.toModule(), path};
    } else {
      node->output()->replaceAllUsesWith(bind(*node, owner.module, path, value));
    }
  }

  jit::Value* bind(const jit::Node& node, const jit::Module& module, const std::string& path,
                   const c10::IValue& value) {
    const std::string name = node.s(c10::attr::name);
    const Key key = {module._ivalue().get(), name};
    if (const auto found = bound_.find(key); found != bound_.end()) {
      return input_of(found->second);
    }
    if (value.isTensor() && value.toTensor().defined()) {
      return bind_tensor(key, module, path, value.toTensor());
    }
    if (value.isTensorList()) return bind_list(module, path, value.toTensorList());
    if (name == "training" && value.isBool()) {
      return add(key, module, {GraphAttribute::Kind::kMode, path}, c10::BoolType::get());
    }
    const jit::WithInsertPoint at(*flat_->ir->block()->nodes().begin());
    const auto constant = jit::tryInsertConstant(*flat_->ir, value);
    if (!constant) {
      refuse(
          fmt::format("{} reads the attribute '{}' of type {}, which is neither a tensor nor a "
                      "constant; register its tensors as parameters or buffers",
                      describe(node), path, value.type()->repr_str()));
    }
    return *constant;
  }

  jit::Value* bind_tensor(const Key& key, const jit::Module& module, const std::string& path,
                          const torch::Tensor& tensor) {
    const auto& type = module.type();
    if (!type->is_parameter(type->getAttributeSlot(key.second))) {
      return add(key, module, {GraphAttribute::Kind::kBuffer, path, tensor},
                 c10::TensorType::get());
    }
    const auto tied = tensor.numel() > 0 ? places_.find(place_of(tensor)) : places_.end();
    if (tied == places_.end()) {
      places_[place_of(tensor)] = flat_->attributes.size();
      return add(key, module, {GraphAttribute::Kind::kParameter, path, tensor},
                 c10::TensorType::get());
    }
    GraphAttribute& first = flat_->attributes[tied->second];
    first.other_names.push_back(path);
    jit::Module(module).setattr(key.second, first.tensor);
    bound_[key] = tied->second;
    return input_of(tied->second);
  }

  /// A list of tensors, as recurrent modules keep of their parameters, becomes a list that the
  /// graph makes of its inputs; tensors that are parameters of the module are those parameters.
  jit::Value* bind_list(const jit::Module& module, const std::string& path,
                        c10::List<torch::Tensor> list) {
    std::vector<jit::Value*> values;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const torch::Tensor tensor = list.get(i);
      std::string name = fmt::format("{}.{}", path, i);
      for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
        if (place_of(parameter.value) == place_of(tensor)) name = parameter.name;
      }
      const Key key = {module._ivalue().get(), name};
      const auto found = bound_.find(key);
      if (found != bound_.end()) {
        values.push_back(input_of(found->second));
      } else if (module.hasattr(name)) {
        const std::string prefix = path.substr(0, path.rfind('.') + 1);  // "" without a dot
        values.push_back(bind_tensor(key, module, prefix + name, module.attr(name).toTensor()));
      } else {
        values.push_back(add(key, module, {GraphAttribute::Kind::kBuffer, name, tensor},
                             c10::TensorType::get()));
      }
      // Else the list would keep the old tensor where the module moves.
      if (module.hasattr(name)) list.set(i, module.attr(name).toTensor());
    }
    const jit::WithInsertPoint at(*flat_->ir->block()->nodes().begin());
    return flat_->ir->insertNode(flat_->ir->createList(c10::TensorType::get(), values))->output();
  }

  jit::Value* add(const Key& key, const jit::Module& module, GraphAttribute attribute,
                  const c10::TypePtr& type) {
    bound_[key] = flat_->attributes.size();
    flat_->attributes.push_back(std::move(attribute));
    flat_->owners.push_back(module);
    return flat_->ir->addInput()->setType(type);
  }

  /// The module itself is still the first input.
  jit::Value* input_of(std::size_t attribute) const {
    return flat_->ir->inputs().at(1 + flat_->inputs.size() + attribute);
  }

  FlatGraph* flat_;
  std::map<Key, std::size_t> bound_;     // attributes by where they are
  std::map<Place, std::size_t> places_;  // parameters by their memory
  std::unordered_map<const jit::Value*, Owner> modules_;
  std::vector<jit::Node*> looks_;  // at attributes, in order
};

/// The caller's inputs: tensors. Others must have a default, which is taken.
void settle_inputs(const c10::FunctionSchema& schema, FlatGraph* flat) {
  jit::Graph& ir = *flat->ir;
  std::size_t num_defaults = 0;
  for (std::size_t i = 1; i < ir.inputs().size();) {
    const c10::Argument& argument = schema.arguments().at(i + num_defaults);
    jit::Value* value = ir.inputs()[i];
    if (value->type()->isSubtypeOf(*c10::TensorType::get())) {
      flat->inputs.push_back(argument.name());
      ++i;
      continue;
    }
    if (!argument.default_value()) {
      refuse(
          fmt::format("input '{}' of forward is a {}; a pipeline passes tensors: wrap the module "
                      "so that its forward takes tensors only",
                      argument.name(), value->type()->repr_str()));
    }
    const jit::WithInsertPoint at(*ir.block()->nodes().begin());
    value->replaceAllUsesWith(ir.insertConstant(*argument.default_value()));
    ir.eraseInput(i);
    ++num_defaults;
  }
}

/// Makes one output of each tensor in tuples, lists and dictionaries that the graph itself builds.
void flatten_outputs(jit::Graph* ir) {
  for (std::size_t i = 0; i < ir->outputs().size();) {
    jit::Value* value = ir->outputs()[i];
    if (value->type()->isSubtypeOf(*c10::TensorType::get())) {
      ++i;
      continue;
    }
    jit::Node* maker = value->node();
    std::vector<jit::Value*> parts;
    if (maker->kind() == c10::prim::TupleConstruct || maker->kind() == c10::prim::ListConstruct) {
      parts = maker->inputs().vec();
    } else if (maker->kind() == c10::prim::DictConstruct) {  // key, value, key, value
      for (std::size_t k = 1; k < maker->inputs().size(); k += 2) parts.push_back(maker->input(k));
    } else if (value->type()->kind() == c10::TypeKind::TupleType) {
      jit::Node* unpack = ir->createTupleUnpack(value)->insertBefore(ir->return_node());
      parts = unpack->outputs().vec();
    } else {
      refuse(
          fmt::format("output {} of forward is a {} (made by {}); a pipeline returns tensors, or "
                      "a tuple of tensors",
                      i, value->type()->repr_str(), describe(*maker)));
    }
    ir->eraseOutput(i);
    for (std::size_t k = 0; k < parts.size(); ++k) ir->block()->insertOutput(i + k, parts[k]);
  }
}

}  // namespace

FlatGraph flatten(const jit::Module& module, const std::string& method) {
  const auto found = module.find_method(method);
  if (!found) {
    refuse(fmt::format("the module has no method '{}'; it has {}", method, [&] {
      std::string names;
      for (const auto& m : module.get_methods()) names += (names.empty() ? "" : ", ") + m.name();
      return names.empty() ? "none" : names;
    }()));
  }
  FlatGraph flat;
  flat.ir = found->graph()->copy();
  jit::Inline(*flat.ir);
  settle_inputs(found->function().getSchema(), &flat);
  Lowering(&flat).lower(module);
  flat.ir->eraseInput(0);
  jit::ConstantPropagation(flat.ir);
  jit::LowerSimpleTuples(flat.ir);
  flatten_outputs(flat.ir.get());
  jit::RemoveTensorMutation(flat.ir);
  take_out_counters(&flat);
  jit::EliminateDeadCode(flat.ir);
  return flat;
}

}  // namespace pipewright
