#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace pipewright {

/// What a layer's random draws depend on, and all that they depend on.
struct RandomKey {
  std::uint64_t run_seed = 0;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;
  std::int64_t layer = 0;
};

/// The 64-bit seed of a key's stream. Keys that differ in one bit give unrelated seeds. Fixed for
/// all time: a resumed run must draw what the first would have.
std::uint64_t stream_seed(const RandomKey& key);

/// While it lives, what this thread draws at random comes from the key's own stream: the same
/// numbers on every thread, on every stage, and when the layer is run a second time (recompute).
///
///     RandomScope scope({seed, step, micro_batch, layer}, device);
///     output = layer.forward(input);
///
/// Covered on CPU: every operator with a CPU kernel that takes a generator (random_operators()),
/// called without one. These draw for all of torch::rand, randn, randint, randperm, normal,
/// bernoulli, multinomial, their `_like` and in-place forms, for Dropout, Dropout2d/3d,
/// AlphaDropout, FeatureAlphaDropout, RReLU, the dropout inside RNNs and attention, and
/// functional::dropout and gumbel_softmax.
/// Covered on another device: what uses that device's default generator, which is everything.
///
/// Not covered, and as without a scope: draws with a generator of the caller's own, draws by
/// threads the layer starts itself, and draws on a third device. torch::manual_seed() inside a
/// scope seeds what follows the scope, not the scope's stream (CPU); on CUDA it is undone at the
/// scope's end.
///
/// Scopes nest on one thread: the inner one has its own stream, the outer one then goes on where it
/// was. Nested scopes name the same device (or the CPU). Costs one to two microseconds on CPU.
///
/// `device`: where the layer runs. Another device than the CPU has one default generator for the
/// whole process, and its kernels take their numbers when they are launched: so a scope there holds
/// a lock of the process until its end, and puts the generator's state back then. Stage threads
/// that share a GPU take turns launching; the GPU does not wait. Threads that draw on that GPU
/// outside a scope meanwhile would get in between: do not.
class RandomScope {
 public:
  /// Throws LibTorch's error where `device` does not exist; then nothing has changed.
  RandomScope(const RandomKey& key, torch::Device device);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;
  RandomScope(RandomScope&&) = delete;
  RandomScope& operator=(RandomScope&&) = delete;

 private:
  void take_over_device(std::uint64_t seed, torch::Device device);

  // Of a device other than the CPU; undefined and unlocked on the CPU.
  std::unique_lock<std::recursive_mutex> device_lock_;
  at::Generator device_generator_;
  torch::Tensor device_state_;
};

/// While it lives, what this thread would fill with random numbers on the CPU (normal_, uniform_
/// and the like) stays as it is. To look at what a maker makes, without the time and the memory
/// that its numbers take: untouched memory is not there yet.
class NoDraws {
 public:
  NoDraws();
  ~NoDraws();
  NoDraws(const NoDraws&) = delete;
  NoDraws& operator=(const NoDraws&) = delete;
  NoDraws(NoDraws&&) = delete;
  NoDraws& operator=(NoDraws&&) = delete;
};

/// Replaces LibTorch's CPU kernels by ones that ask for the thread's scope first. Outside a scope
/// they draw what LibTorch draws. Done by the first scope; any thread may call it, any number of
/// times. Stays until the process ends.
void install_random_overrides();

/// The overridden operators, as `aten::name.overload` without the `aten::`.
const std::vector<std::string>& random_operators();

}  // namespace pipewright
