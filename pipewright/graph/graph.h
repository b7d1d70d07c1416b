#pragma once

#include <torch/script.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/nn/tensors.h"

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace pipewright {

/// What an input of a flat graph stands for, beside the inputs that the caller gives.
struct GraphAttribute {
  enum class Kind {
    kParameter,
    kBuffer,  // or a tensor that is an attribute only
    kMode,    // `training` of a module
  };
  Kind kind = Kind::kBuffer;
  std::string name;                           // as in the module: "encoder.0.weight"
  torch::Tensor tensor = {};                  // the module's own; undefined for a mode
  std::vector<std::string> other_names = {};  // of a parameter that is tied
};

/// The counter of a batch norm in training, taken out of the graph: it counts mini-batches, not
/// micro-batches. By index of attributes.
struct GraphNorm {
  std::size_t running_mean = 0;
  std::size_t running_var = 0;
  std::size_t counter = 0;
  double momentum = 0;
};

/// A TorchScript module as one flat graph: calls inlined, submodules dissolved, its parameters and
/// buffers inputs with names. Parameters are the module's own tensors: train them, and save()
/// writes them into a file that Python reads. Copies share the module.
class Graph {
 public:
  /// From a file that torch.jit.trace or torch.jit.script saved. Throws InvalidArgument for one
  /// that is missing, damaged or something else, and for a method that cannot be made flat, with
  /// the line of its source.
  static Graph load(const std::string& path, const std::string& method = "forward");

  /// The module is shared, not copied. Parameters whose memory is one (a file does not keep more of
  /// a tied weight) become one tensor of the module again.
  static Graph from(torch::jit::Module module, const std::string& method = "forward");

  /// Traces `forward`, which calls a C++ module, on the example inputs: what it does for them is
  /// what the graph does. The graph's parameters and buffers are those of `module`.
  static Graph trace(torch::nn::Module& module,
                     const std::function<Tensors(const Tensors&)>& forward, const Tensors& inputs);

  /// Of the tensors that forward() takes, in order.
  const std::vector<std::string>& input_names() const;
  std::size_t num_outputs() const;

  /// What the method uses, tied parameters once; in the order in which the graph reads them.
  std::vector<GraphAttribute> parameters() const;
  std::vector<GraphAttribute> buffers() const;
  /// Parameters of the module that the method does not use, by name.
  std::vector<std::string> unused_parameters() const;

  /// Runs it on this thread as it stands: no optimizer rewrites it, so that bits do not depend on
  /// how often it ran. Throws what an operation threw.
  Tensors forward(const Tensors& inputs) const;

  /// As in Python, for all modules. A traced module does not look at it.
  void train(bool on = true);
  /// Moves the module's tensors of floating point.
  void to(torch::ScalarType dtype);
  void to(torch::Device device);

  /// Writes the module with its tensors as they are. Throws InvalidArgument where it cannot.
  void save(const std::string& path) const;
  const torch::jit::Module& module() const;

  // For the rest of graph/ and for what is built on it. The graph is not to be changed.

  /// Inputs: input_names(), then attributes().
  const std::shared_ptr<torch::jit::Graph>& ir() const;
  const std::vector<GraphAttribute>& attributes() const;
  const std::vector<GraphNorm>& norms() const;
  /// Whether the mode of attributes()[index] is training, now.
  bool mode(std::size_t index) const;
  /// Where an attribute's value is among the inputs of ir().
  torch::jit::Value* value_of(std::size_t attribute) const;
  /// The attribute that a value is; none for other values.
  std::optional<std::size_t> attribute_of(const torch::jit::Value* value) const;

 private:
  struct State;
  explicit Graph(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Where a node comes from, for messages: `model.py:12`, or the module's name where the file has no
/// lines.
std::string source_line(const torch::jit::Node& node);

/// What a node does, for messages: `aten::linear (model.py:12)`.
std::string describe(const torch::jit::Node& node);

}  // namespace pipewright
