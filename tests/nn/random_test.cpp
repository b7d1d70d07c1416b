#include "pipewright/nn/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pipewright {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

const torch::Device kCpu(torch::kCPU);

struct Draw {
  std::string name;
  std::function<Tensor()> draw;
};

/// Everything that draws. 37 values, so that vectorised kernels have a tail.
std::vector<Draw> layers_that_draw() {
  const auto ones = [] { return torch::ones({37}); };
  const auto images = [] { return torch::ones({3, 5, 2, 2}); };
  return {
      {"Dropout", [=] { return torch::nn::Dropout(0.5)(ones()); }},
      {"Dropout2d", [=] { return torch::nn::Dropout2d(0.5)(images()); }},
      {"Dropout3d", [=] { return torch::nn::Dropout3d(0.5)(images().unsqueeze(4)); }},
      {"AlphaDropout", [=] { return torch::nn::AlphaDropout(0.5)(ones()); }},
      {"FeatureAlphaDropout", [=] { return torch::nn::FeatureAlphaDropout(0.5)(images()); }},
      {"RReLU", [=] { return F::rrelu(-ones(), F::RReLUFuncOptions().training(true)); }},
      {"functional_dropout", [=] { return F::dropout(ones(), F::DropoutFuncOptions().p(0.3)); }},
      {"gumbel_softmax",
       [=] {
         return F::gumbel_softmax(torch::ones({3, 9}));
       }},
      {"native_dropout", [=] { return std::get<0>(torch::native_dropout(ones(), 0.5, true)); }},
  };
}

std::vector<Draw> operators_that_draw() {
  const auto half = [] { return torch::full({37}, 0.5); };
  const auto empty = [] { return torch::zeros({37}); };
  return {
      {"rand", [] { return torch::rand({37}); }},
      {"randn", [] { return torch::randn({37}); }},
      {"randn_few", [] { return torch::randn({3}); }},
      {"randint", [] { return torch::randint(3, 1000, {37}); }},
      {"randperm", [] { return torch::randperm(37); }},
      {"normal", [=] { return at::normal(half(), 2.0); }},
      {"normal_std", [=] { return at::normal(1.0, half()); }},
      {"normal_both", [=] { return at::normal(half(), half()); }},
      {"bernoulli", [=] { return torch::bernoulli(half()); }},
      {"bernoulli_p", [=] { return torch::bernoulli(empty(), 0.4); }},
      {"bernoulli_tensor", [=] { return empty().bernoulli_(half()); }},
      {"multinomial", [=] { return torch::multinomial(half(), 20); }},
      {"multinomial_replaced", [=] { return torch::multinomial(half(), 50, true); }},
      {"poisson", [=] { return torch::poisson(half() * 8); }},
      {"binomial", [=] { return torch::binomial(half() * 40, half()); }},
      {"gamma", [=] { return torch::_standard_gamma(half()); }},
      {"dirichlet", [=] { return torch::_sample_dirichlet(half()); }},
      {"random", [=] { return empty().random_(); }},
      {"random_to", [=] { return empty().random_(1000); }},
      {"exponential", [=] { return empty().exponential_(); }},
      {"geometric", [=] { return empty().geometric_(0.2); }},
      {"log_normal", [=] { return empty().log_normal_(); }},
      {"cauchy", [=] { return empty().cauchy_(); }},
  };
}

std::vector<Draw> all_draws() {
  std::vector<Draw> draws = layers_that_draw();
  for (Draw& draw : operators_that_draw()) draws.push_back(std::move(draw));
  return draws;
}

/// Two draws in a row: the second sees what the first left in the generator.
Tensor twice(const Draw& draw) {
  return torch::cat({draw.draw().flatten(), draw.draw().flatten()});
}

Tensor in_scope(const Draw& draw, const RandomKey& key) {
  const RandomScope scope(key, kCpu);
  return twice(draw);
}

/// What LibTorch draws before anything is overridden, by name, and what installing printed.
struct Stock : ::testing::Environment {
  inline static std::unordered_map<std::string, Tensor> draws;
  inline static std::string printed;
  void SetUp() override {
    for (const Draw& draw : all_draws()) {
      torch::manual_seed(7);
      draws[draw.name] = twice(draw);
    }
    testing::internal::CaptureStderr();
    install_random_overrides();
    printed = testing::internal::GetCapturedStderr();
  }
};
const auto* const kStock = ::testing::AddGlobalTestEnvironment(new Stock);

class RandomDraw : public ::testing::TestWithParam<Draw> {};
INSTANTIATE_TEST_SUITE_P(All, RandomDraw, ::testing::ValuesIn(all_draws()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(RandomDraw, OutsideAScopeIsWhatLibTorchDraws) {
  torch::manual_seed(7);
  EXPECT_TRUE(twice(GetParam()).equal(Stock::draws.at(GetParam().name)));
}

TEST_P(RandomDraw, InAScopeIsTheSameAgain) {
  const Tensor first = in_scope(GetParam(), {1, 2, 3, 4});
  torch::manual_seed(99);
  torch::rand({5});
  EXPECT_TRUE(in_scope(GetParam(), {1, 2, 3, 4}).equal(first));
}

TEST_P(RandomDraw, DependsOnEveryPartOfTheKey) {
  const Tensor draw = in_scope(GetParam(), {1, 2, 3, 4});
  for (std::size_t part = 0; part < 4; ++part) {
    bool differs = false;  // masks of a few channels may agree by chance, eight do not
    for (int i = 1; i <= 8 && !differs; ++i) {
      std::array<std::int64_t, 4> key = {1, 2, 3, 4};
      key[part] += i;
      const auto seed = static_cast<std::uint64_t>(key[0]);
      differs = !in_scope(GetParam(), {seed, key[1], key[2], key[3]}).equal(draw);
    }
    EXPECT_TRUE(differs) << "part " << part;
  }
}

TEST_P(RandomDraw, IsTheSameOnOneTwoAndFourThreads) {
  constexpr int kKeys = 8;
  const auto run = [&](int num_threads) {
    std::vector<Tensor> drawn(kKeys);
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = t; i < kKeys; i += num_threads) drawn[i] = in_scope(GetParam(), {1, 2, i, 3});
      });
    }
    for (std::thread& thread : threads) thread.join();
    return drawn;
  };
  const std::vector<Tensor> one = run(1);
  for (const int num_threads : {2, 4}) {
    const std::vector<Tensor> several = run(num_threads);
    for (int i = 0; i < kKeys; ++i) EXPECT_TRUE(several[i].equal(one[i])) << "key " << i;
  }
}

TEST_P(RandomDraw, InAScopeLeavesTheDefaultGeneratorAlone) {
  torch::manual_seed(7);
  in_scope(GetParam(), {1, 2, 3, 4});
  EXPECT_TRUE(twice(GetParam()).equal(Stock::draws.at(GetParam().name)));
}

TEST(RandomOverrides, InstallWithoutAWord) { EXPECT_EQ(Stock::printed, ""); }

TEST(RandomOverrides, CoverEveryCpuKernelThatTakesAGenerator) {
  std::set<std::string> takes_generator;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0) continue;
    const auto& arguments = op->schema().arguments();
    const bool takes = std::any_of(arguments.begin(), arguments.end(), [](const auto& argument) {
      return argument.type()->str().find("Generator") != std::string::npos;
    });
    if (!takes || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    takes_generator.insert(c10::toString(name).substr(6));
  }
  const auto& covered = random_operators();
  EXPECT_EQ(std::set<std::string>(covered.begin(), covered.end()), takes_generator);
}

TEST(RandomScope, NestsWithoutATrace) {
  const auto normals = [] { return torch::randn({3}); };  // odd: half a pair is left over
  const Tensor alone = in_scope({"randn", normals}, {1, 0, 0, 1});
  const auto outer = [&](bool nest) {
    const RandomScope scope({1, 0, 0, 0}, kCpu);
    const Tensor before = normals();
    if (nest) {
      EXPECT_TRUE(in_scope({"randn", normals}, {1, 0, 0, 1}).equal(alone));
    }
    return torch::cat({before, normals()});
  };
  EXPECT_TRUE(outer(true).equal(outer(false)));
}

TEST(RandomScope, EndsWithAnException) {
  torch::manual_seed(7);
  const Draw fails{"fails", []() -> Tensor { throw std::runtime_error("a layer threw"); }};
  EXPECT_THROW(in_scope(fails, {1, 0, 0, 0}), std::runtime_error);
  EXPECT_TRUE(twice({"rand", [] { return torch::rand({37}); }}).equal(Stock::draws.at("rand")));
}

TEST(RandomScope, LeavesAGeneratorOfTheCallersOwn) {
  const auto draw = [] {
    return torch::empty({9}).uniform_(0, 1, at::detail::createCPUGenerator(5));
  };
  const Tensor outside = draw();
  const RandomScope scope({1, 0, 0, 0}, kCpu);
  EXPECT_TRUE(draw().equal(outside));
}

TEST(RandomScope, GivesRecomputeTheSameGradients) {
  torch::manual_seed(1);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 4).num_layers(3).dropout(0.5));
  const Tensor x = torch::randn({5, 2, 4});
  const auto gradient = [&] {
    const RandomScope scope({1, 0, 0, 0}, kCpu);
    const Tensor input = x.clone().requires_grad_();
    std::get<0>(lstm(input)).sum().backward();
    return input.grad();
  };
  const Tensor first = gradient();
  EXPECT_TRUE(gradient().equal(first));
}

TEST(RandomScope, NeighbouringKeysAgreeInHalfOfAMask) {
  const Draw mask{"mask", [] { return torch::bernoulli(torch::zeros({10000}), 0.5); }};
  const Tensor first = in_scope(mask, {1, 0, 0, 0});
  for (const RandomKey& key : {RandomKey{2, 0, 0, 0}, RandomKey{1, 1, 0, 0}, RandomKey{1, 0, 1, 0},
                               RandomKey{1, 0, 0, 1}}) {
    const double share = in_scope(mask, key).eq(first).to(torch::kDouble).mean().item<double>();
    EXPECT_NEAR(share, 0.5, 0.02);  // four standard deviations
  }
}

TEST(StreamSeed, IsFixedForAllTime) {
  EXPECT_EQ(stream_seed({0, 0, 0, 0}), 2391539541053276776U);
  EXPECT_EQ(stream_seed({1, 2, 3, 4}), 390058124587706760U);
}

TEST(StreamSeed, IsUniqueOverALongRun) {
  std::set<std::uint64_t> seeds;
  for (std::int64_t i = 0; i < 100000; ++i) {
    seeds.insert(stream_seed({1, i / 500, i / 50 % 10, i % 50}));
  }
  EXPECT_EQ(seeds.size(), 100000U);
}

TEST(StreamSeed, UsesMoreThanThe32BitsOfLibTorchsOwnSeeding) {
  const Draw draw{"rand", [] { return torch::rand({9}); }};
  std::unordered_map<std::uint32_t, std::int64_t> step_of;  // by the seed's lower half
  for (std::int64_t step = 0; step < 1000000; ++step) {
    const auto [found, fresh] = step_of.emplace(stream_seed({1, step, 0, 0}), step);
    if (fresh) continue;
    EXPECT_FALSE(in_scope(draw, {1, step, 0, 0}).equal(in_scope(draw, {1, found->second, 0, 0})));
    return;
  }
  FAIL() << "no two seeds with the same lower half";
}

TEST(RandomScopeWithoutCuda, Throws) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is a GPU";
  EXPECT_ANY_THROW(RandomScope({1, 0, 0, 0}, torch::Device(torch::kCUDA, 0)));
}

TEST(RandomScopeOnCuda, ThreadsThatShareAGpuDrawTheirOwn) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const torch::Device gpu(torch::kCUDA, 0);
  const Tensor ones = torch::ones({1000}, gpu);
  const auto draw = [&](std::int64_t key) {
    const RandomScope outer({1, 0, key, 0}, gpu);
    const Tensor first = torch::nn::Dropout(0.5)(ones);
    const RandomScope inner({1, 0, key, 1}, torch::Device(torch::kCUDA));
    const Tensor both = torch::rand({3}, gpu) + torch::rand({3}).to(gpu);
    return torch::cat({first, both, torch::randn({3}, gpu)}).cpu();
  };
  torch::manual_seed(7);
  const Tensor stock = torch::cat({torch::rand({5}, gpu), torch::rand({5}, gpu)}).cpu();
  torch::manual_seed(7);
  const Tensor before = torch::rand({5}, gpu);
  std::vector<Tensor> drawn(64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 64; i += 4) drawn[i] = draw(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(torch::cat({before, torch::rand({5}, gpu)}).cpu().equal(stock));
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(draw(i).equal(drawn[i])) << "key " << i;
  EXPECT_FALSE(drawn[0].equal(drawn[1]));
}

}  // namespace
}  // namespace pipewright
