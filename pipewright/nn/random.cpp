#include "pipewright/nn/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/_sample_dirichlet_cpu_dispatch.h>
#include <ATen/ops/_standard_gamma_cpu_dispatch.h>
#include <ATen/ops/bernoulli_cpu_dispatch.h>
#include <ATen/ops/binomial_cpu_dispatch.h>
#include <ATen/ops/cauchy_cpu_dispatch.h>
#include <ATen/ops/exponential_cpu_dispatch.h>
#include <ATen/ops/geometric_cpu_dispatch.h>
#include <ATen/ops/log_normal_cpu_dispatch.h>
#include <ATen/ops/multinomial_cpu_dispatch.h>
#include <ATen/ops/normal_cpu_dispatch.h>
#include <ATen/ops/poisson_cpu_dispatch.h>
#include <ATen/ops/random_cpu_dispatch.h>
#include <ATen/ops/randperm_cpu_dispatch.h>
#include <ATen/ops/rrelu_with_noise_cpu_dispatch.h>
#include <ATen/ops/uniform_cpu_dispatch.h>

#include <array>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/torch/compat.h"

namespace pipewright {

namespace {

using at::Tensor;
using Generator = compat::Optional<at::Generator>;

// ---- Seeds ----

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

/// splitmix64's finaliser: a bijection in which every input bit moves half of the output bits.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Starts the generator's stream anew. Not by set_current_seed(): the Mersenne Twister there takes
/// 32 bits of a seed, so that among 100,000 layer runs two would share their masks more likely than
/// not. All of its state is filled from the 64 bits instead, which costs the same.
void restart(at::Generator& generator, std::uint64_t seed) {
  at::mt19937_data_pod data{};
  data.seed_ = seed;
  data.seeded_ = true;
  data.left_ = 1;  // the first draw makes the next 624 numbers
  data.next_ = 0;
  std::uint64_t counter = seed;
  for (std::size_t i = 0; i < data.state_.size(); i += 2) {
    const std::uint64_t word = mix(counter += kGolden);
    data.state_[i] = static_cast<std::uint32_t>(word);
    data.state_[i + 1] = static_cast<std::uint32_t>(word >> 32);
  }
  at::mt19937 engine;
  engine.set_data(data);
  auto* cpu = generator.get<at::CPUGeneratorImpl>();
  cpu->set_engine(engine);
  // Normal numbers are made in pairs: the second of the last pair belongs to the last stream.
  cpu->set_next_float_normal_sample({});
  cpu->set_next_double_normal_sample({});
}

// ---- What a thread draws from ----

/// One generator for every depth of nesting, kept for the thread's life, since making one costs
/// more than reseeding it. An inner scope then leaves the outer stream alone without a copy.
struct ThreadStreams {
  std::vector<at::Generator> generators;
  std::size_t depth = 0;
  std::vector<torch::Device> devices;  // other than CPU, whose lock this thread holds
  int no_draws = 0;                    // scopes in which nothing is drawn
};

ThreadStreams& thread_streams() {
  thread_local ThreadStreams streams;
  return streams;
}

void enter_stream(std::uint64_t seed) {
  ThreadStreams& streams = thread_streams();
  if (streams.generators.size() == streams.depth) {
    streams.generators.push_back(at::detail::createCPUGenerator());
  }
  restart(streams.generators[streams.depth], seed);
  ++streams.depth;
}

/// The generator a kernel uses: the caller's, else the scope's, else none (LibTorch's default).
Generator choose(Generator given) {
  if (given.has_value() && given->defined()) return given;
  const ThreadStreams& streams = thread_streams();
  if (streams.depth == 0) return given;
  return streams.generators[streams.depth - 1];
}

// ---- The overrides ----

template <typename T>
decltype(auto) substitute(T&& argument) {
  if constexpr (std::is_same_v<std::decay_t<T>, Generator>) {
    return choose(std::forward<T>(argument));
  } else {
    return std::forward<T>(argument);
  }
}

/// Whether a kernel writes into its first argument.
template <typename Result, typename First, typename... Rest>
constexpr bool fills() {
  return std::is_same_v<Result, Tensor&> && std::is_same_v<First, Tensor&>;
}

/// A kernel with the signature of `kKernel`, LibTorch's own, that hands it the chosen generator.
template <auto kKernel>
struct Seeded;
template <typename Result, typename... Arguments, Result (*kKernel)(Arguments...)>
struct Seeded<kKernel> {
  static Result call(Arguments... arguments) {
    if constexpr (fills<Result, Arguments...>()) {
      if (thread_streams().no_draws > 0) return std::get<0>(std::forward_as_tuple(arguments...));
    }
    return kKernel(substitute(std::forward<Arguments>(arguments))...);
  }
};

/// The overrides of the CPU key. Autograd sits above that key and remains as it was.
class Overrides {
 public:
  Overrides() {
    const compat::SilentWarnings silent;
    fill_operators();
    normal_operators();
    discrete_operators();
    layer_operators();
  }

  const std::vector<std::string>& names() const { return names_; }

 private:
  template <auto kKernel>
  void add(const char* name) {
    library_.impl(name, TORCH_FN((&Seeded<kKernel>::call)));
    names_.emplace_back(name);
  }
  /// One of several overloads, picked by its signature.
  template <typename Signature, Signature* kKernel>
  void add_overload(const char* name) {
    add<kKernel>(name);
  }

  void fill_operators() {
    add<&at::cpu::uniform_>("uniform_");
    add<&at::cpu::exponential_>("exponential_");
    add<&at::cpu::geometric_>("geometric_");
    add<&at::cpu::log_normal_>("log_normal_");
    add<&at::cpu::cauchy_>("cauchy_");
    using Integer = compat::Optional<std::int64_t>;
    add_overload<Tensor&(Tensor&, Generator), at::cpu::random_>("random_");
    add_overload<Tensor&(Tensor&, std::int64_t, Generator), at::cpu::random_>("random_.to");
    add_overload<Tensor&(Tensor&, std::int64_t, Integer, Generator), at::cpu::random_>(
        "random_.from");
  }

  void normal_operators() {
    add<&at::cpu::normal_>("normal_");
    using Mean = const Tensor&;
    using Std = const Tensor&;
    add_overload<Tensor(Mean, double, Generator), at::cpu::normal>("normal.Tensor_float");
    add_overload<Tensor(double, Std, Generator), at::cpu::normal>("normal.float_Tensor");
    add_overload<Tensor(Mean, Std, Generator), at::cpu::normal>("normal.Tensor_Tensor");
    add_overload<Tensor&(Mean, double, Generator, Tensor&), at::cpu::normal_outf>(
        "normal.Tensor_float_out");
    add_overload<Tensor&(double, Std, Generator, Tensor&), at::cpu::normal_outf>(
        "normal.float_Tensor_out");
    add_overload<Tensor&(Mean, Std, Generator, Tensor&), at::cpu::normal_outf>(
        "normal.Tensor_Tensor_out");
  }

  void discrete_operators() {
    add_overload<Tensor&(Tensor&, double, Generator), at::cpu::bernoulli_>("bernoulli_.float");
    add_overload<Tensor&(Tensor&, const Tensor&, Generator), at::cpu::bernoulli_>(
        "bernoulli_.Tensor");
    add<&at::cpu::bernoulli_outf>("bernoulli.out");
    add<&at::cpu::multinomial>("multinomial");
    add<&at::cpu::multinomial_outf>("multinomial.out");
    add<&at::cpu::randperm_outf>("randperm.generator_out");
    add<&at::cpu::poisson>("poisson");
    add<&at::cpu::binomial>("binomial");
  }

  void layer_operators() {
    add<&at::cpu::rrelu_with_noise>("rrelu_with_noise");
    add<&at::cpu::rrelu_with_noise_outf>("rrelu_with_noise.out");
    add<&at::cpu::rrelu_with_noise_>("rrelu_with_noise_");
    add<&at::cpu::_standard_gamma>("_standard_gamma");
    add<&at::cpu::_sample_dirichlet>("_sample_dirichlet");
  }

  torch::Library library_{torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__};
  std::vector<std::string> names_;
};

/// Never destroyed: at exit other threads may still draw, and LibTorch may already be gone.
const Overrides& overrides() {
  static const auto* installed = new Overrides;
  return *installed;
}

// ---- Devices ----

/// The lock of a device's default generator among scopes. Not the generator's own mutex: the
/// kernels take that one at every draw.
std::recursive_mutex& device_mutex(torch::Device device) {
  static std::mutex guard;
  static std::map<std::pair<int, int>, std::recursive_mutex> mutexes;
  const std::lock_guard<std::mutex> lock(guard);
  return mutexes[{static_cast<int>(device.type()), static_cast<int>(device.index())}];
}

}  // namespace

std::uint64_t stream_seed(const RandomKey& key) {
  const std::array<std::uint64_t, 4> words = {key.run_seed, static_cast<std::uint64_t>(key.step),
                                              static_cast<std::uint64_t>(key.micro_batch),
                                              static_cast<std::uint64_t>(key.layer)};
  std::uint64_t seed = 0;
  for (const std::uint64_t word : words) seed = mix((seed + kGolden) ^ word);
  return seed;
}

RandomScope::RandomScope(const RandomKey& key, torch::Device device) {
  install_random_overrides();
  const std::uint64_t seed = stream_seed(key);
  if (!device.is_cpu()) take_over_device(seed, device);
  enter_stream(seed);
}

void RandomScope::take_over_device(std::uint64_t seed, torch::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  device = generator.device();  // "cuda" is by now "cuda:0"
  auto& held = thread_streams().devices;
  // Two threads that lock two devices in different order would wait for each other.
  internal_check(held.empty() || held.back() == device, "nested random scopes on two devices");
  device_lock_ = std::unique_lock<std::recursive_mutex>(device_mutex(device));
  const std::lock_guard<std::mutex> lock(generator.mutex());
  device_state_ = generator.get_state();
  generator.set_current_seed(seed);
  held.push_back(device);
  device_generator_ = std::move(generator);
}

RandomScope::~RandomScope() {
  ThreadStreams& streams = thread_streams();
  --streams.depth;
  if (!device_generator_.defined()) return;
  streams.devices.pop_back();
  const std::lock_guard<std::mutex> lock(device_generator_.mutex());
  device_generator_.set_state(device_state_);
}

NoDraws::NoDraws() {
  install_random_overrides();
  ++thread_streams().no_draws;
}

NoDraws::~NoDraws() { --thread_streams().no_draws; }

void install_random_overrides() { overrides(); }

const std::vector<std::string>& random_operators() { return overrides().names(); }

}  // namespace pipewright
