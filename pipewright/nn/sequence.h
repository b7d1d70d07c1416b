#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pipewright/nn/tensors.h"

namespace pipewright {

/// What a layer says of itself when it is added.
struct LayerOptions {
  /// Names under which the last outputs of its forward are put aside, for a later layer to pop.
  /// They do not go to the next layer.
  std::vector<std::string> stash = {};
  /// Names whose tensors are handed to its forward after its inputs. Each is popped once.
  std::vector<std::string> pop = {};
  /// Cost hint in any unit, for the partitioner; 0: unknown.
  double cost = 0;
  /// Its input is kept where recompute keeps named checkpoints.
  bool checkpoint = false;
  /// Its forward writes into its input. Found by itself for the stock activations and dropouts.
  bool in_place = false;
  /// Of add_later(): parameters of layers before it, as `layer.name`, that its maker is handed and
  /// uses too.
  std::vector<std::string> tied = {};
};

/// What the maker of a layer makes.
struct BuiltLayer {
  std::function<Tensors(const Tensors&)> forward;
  std::shared_ptr<torch::nn::Module> module;
};

/// One element of a Sequence: a name, how to run it, and the module that owns its parameters.
struct Layer {
  std::string name;
  std::function<Tensors(const Tensors&)> forward;
  std::shared_ptr<torch::nn::Module> module;  // null: no parameters, no buffers, no mode
  /// Makes forward and module; empty: they are there. From the tensors that options.tied names.
  std::function<BuiltLayer(const Tensors&)> make = {};
  bool elsewhere = false;  // another process runs it
  LayerOptions options;
  std::optional<int> stage;             // from a stage guard
  std::optional<torch::Device> device;  // from a stage guard
};

namespace detail {

// How a module's forward is called with, and what it returns as, a list of tensors.
inline Tensors to_tensors(torch::Tensor tensor) { return {std::move(tensor)}; }
inline Tensors to_tensors(Tensors tensors) { return tensors; }
template <typename... T>
Tensors to_tensors(std::tuple<T...> tuple) {
  return std::apply([](auto&&... tensor) { return Tensors{std::move(tensor)...}; },
                    std::move(tuple));
}

[[noreturn]] void refuse_inputs(const std::string& layer, std::size_t given, std::size_t taken);

template <typename Module>
concept TakesVector = requires(Module& module, const Tensors& x) {
  module.forward(x);
};

template <typename Module, std::size_t... I>
constexpr bool takes_tensors(std::index_sequence<I...>) {
  return requires(Module & module, const Tensors& x) { module.forward(x[I]...); };
}

template <std::size_t N, typename Module>
Tensors call_with(Module& module, const Tensors& x) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return to_tensors(module.forward(x[I]...));
  }
  (std::make_index_sequence<N>());
}

/// Its forward is a template that claims to take anything.
template <typename Module>
concept IsSequential = std::is_base_of_v<torch::nn::SequentialImpl, Module>;

/// Calls forward(Tensors), or forward(Tensor, ...) with as many as there are, up to six.
template <typename Module>
Tensors call_forward(const std::string& name, Module& module, const Tensors& x) {
  if constexpr (TakesVector<Module> && !IsSequential<Module>) {
    return to_tensors(module.forward(x));
  } else {
    const auto attempt = [&]<std::size_t N>(std::integral_constant<std::size_t, N>,
                                            std::optional<Tensors>* result) {
      if constexpr (takes_tensors<Module>(std::make_index_sequence<N>())) {
        if (x.size() == N) *result = call_with<N>(module, x);
      }
    };
    std::optional<Tensors> result;
    attempt(std::integral_constant<std::size_t, 1>(), &result);
    attempt(std::integral_constant<std::size_t, 2>(), &result);
    attempt(std::integral_constant<std::size_t, 3>(), &result);
    attempt(std::integral_constant<std::size_t, 4>(), &result);
    attempt(std::integral_constant<std::size_t, 5>(), &result);
    attempt(std::integral_constant<std::size_t, 6>(), &result);
    if (!result) refuse_inputs(name, x.size(), 6);
    return std::move(*result);
  }
}

template <typename T>
struct ModuleOf {};
template <typename T>
requires requires { typename T::element_type; }
struct ModuleOf<T> {  // std::shared_ptr<M>
  using type = typename T::element_type;
  static std::shared_ptr<type> get(T module) { return module; }
};
template <typename T>
requires requires(T holder) { holder.ptr(); }
struct ModuleOf<T> {  // torch::nn::ModuleHolder<M>
  using type = typename T::ContainedType;
  static std::shared_ptr<type> get(T holder) { return holder.ptr(); }
};

template <typename T>
concept IsModule = requires {
  typename ModuleOf<T>::type;
};

template <typename Holder>
BuiltLayer built_layer(const std::string& name, Holder holder) {
  auto module = ModuleOf<Holder>::get(std::move(holder));
  auto* raw = module.get();
  return {[name, raw](const Tensors& x) { return call_forward(name, *raw, x); }, std::move(module)};
}

}  // namespace detail

/// A model as a list of named layers. The layers share ownership of their modules; adding a
/// parameter (or a module) twice ties it: its gradients are summed over its uses.
class Sequence {
 public:
  /// Any torch::nn module whose forward takes tensors (one to six, or a vector) and returns a
  /// tensor, a tuple or a vector of tensors: `model.add("fc1", torch::nn::Linear(8, 8))`, or a
  /// std::shared_ptr to a module of your own. Throws InvalidArgument for a name that is taken or a
  /// misused skip.
  template <typename Holder>
  requires detail::IsModule<Holder> Sequence& add(std::string name, Holder holder,
                                                  LayerOptions options = {}) {
    BuiltLayer built = detail::built_layer(name, std::move(holder));
    return add_layer(std::move(name), std::move(built.forward), std::move(built.module),
                     std::move(options));
  }

  /// A function without parameters of its own.
  template <typename Function>
  requires(!detail::IsModule<Function>) Sequence& add(std::string name, Function function,
                                                      LayerOptions options = {}) {
    return add_function(std::move(name), std::move(function), std::move(options));
  }

  /// A function of several tensors; `module` owns what it uses.
  Sequence& add_layer(std::string name, std::function<Tensors(const Tensors&)> forward,
                      std::shared_ptr<torch::nn::Module> module, LayerOptions options = {});

  /// A module that is made where and when it is needed: of several processes each makes the layers
  /// it runs, and none ever holds the whole model.
  ///
  ///     model.add_later("block3", [=] { return Block(options); });
  ///     model.add_later("head", [](const Tensors& tied) { return Head(tied[0]); },
  ///                     {.tied = {"embed.weight"}});
  ///
  /// `make` returns a module as add() takes it, the same one each time it is called: it may be
  /// called more than once, on any thread, and what it draws at random depends on the model's seed
  /// and the layer's name alone. With .tied it takes those tensors.
  template <typename Maker>
  Sequence& add_later(std::string name, Maker make, LayerOptions options = {}) {
    auto build = [name, make = std::move(make)](const Tensors& tied) {
      if constexpr (std::is_invocable_v<const Maker&, const Tensors&>) {
        return detail::built_layer(name, make(tied));
      } else {
        return detail::built_layer(name, make());
      }
    };
    return add_maker(std::move(name), std::move(build), std::move(options));
  }

  /// Of what the makers of add_later() draw at random.
  void set_seed(std::uint64_t seed) { seed_ = seed; }

  /// Makes a layer of add_later() that is not there yet, and before it those it is tied to;
  /// build_all() all of them. Others stay.
  void build(std::size_t layer);
  void build_all();

  /// The same for a look at it: the layer of the sequence stays as it is.
  BuiltLayer made(std::size_t layer, const Tensors& tied) const;

  /// Each module of a torch::nn::Sequential as a layer, under its name there.
  static Sequence from(const torch::nn::Sequential& modules);

  /// While the guard lives, added layers belong to the stage (and device). Guards go up: a layer of
  /// stage 1 cannot follow one of stage 2.
  class StageGuard {
   public:
    StageGuard(StageGuard&& other) noexcept : sequence_(std::exchange(other.sequence_, nullptr)) {}
    StageGuard(const StageGuard&) = delete;
    StageGuard& operator=(const StageGuard&) = delete;
    StageGuard& operator=(StageGuard&&) = delete;
    ~StageGuard();

   private:
    friend class Sequence;
    explicit StageGuard(Sequence* sequence) : sequence_(sequence) {}
    Sequence* sequence_;
  };
  [[nodiscard]] StageGuard stage(int stage, std::optional<torch::Device> device = std::nullopt);

  const std::vector<Layer>& layers() const { return layers_; }
  std::size_t size() const { return layers_.size(); }

  /// Lets go of a layer's module: its parameters are another process's. The layer stays, and cannot
  /// be run or made.
  void release(std::size_t layer);

  /// Throws InvalidArgument for a stash that no layer pops. (A pop of nothing is refused by add().)
  void check() const;

  /// Every parameter once, in layer order, as `layer.name`. Of layers that are not made yet: none.
  std::vector<std::pair<std::string, torch::Tensor>> named_parameters() const;
  std::vector<std::pair<std::string, torch::Tensor>> named_buffers() const;
  void train(bool on = true) const;

 private:
  Sequence& add_function(std::string name, std::function<torch::Tensor(torch::Tensor)> function,
                         LayerOptions options);
  Sequence& add_maker(std::string name, std::function<BuiltLayer(const Tensors&)> make,
                      LayerOptions options);
  torch::Tensor tied_tensor(const std::string& name);

  std::vector<Layer> layers_;
  std::uint64_t seed_ = 1;
  std::map<std::string, torch::Tensor> tied_;  // of layers that others run
  std::optional<int> guard_stage_;
  std::optional<torch::Device> guard_device_;
};

}  // namespace pipewright
