#include "pipewright/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

/// Sample i is the number i; the target is the epoch. Fails at `bad` where that is a sample.
class Numbers final : public DataSource {
 public:
  explicit Numbers(std::int64_t size, std::int64_t bad = -1) : size_(size), bad_(bad) {}

  std::int64_t size() const override { return size_; }
  SampleBatch batch(std::span<const std::int64_t> samples, std::int64_t epoch) const override {
    for (const std::int64_t sample : samples) {
      if (sample == bad_ && broken) throw InvalidArgument("data", "'file' line 3: damaged");
    }
    std::this_thread::yield();  // so that workers overtake each other
    const auto rows = static_cast<std::int64_t>(samples.size());
    return {{torch::tensor(std::vector<std::int64_t>(samples.begin(), samples.end()))},
            {torch::full({rows}, epoch, torch::kInt64)}};
  }

  mutable std::atomic<bool> broken = true;

 private:
  std::int64_t size_;
  std::int64_t bad_;
};

std::vector<std::int64_t> numbers_in(const torch::Tensor& tensor) {
  return {tensor.data_ptr<std::int64_t>(), tensor.data_ptr<std::int64_t>() + tensor.numel()};
}

std::shared_ptr<Numbers> numbers(std::int64_t size, std::int64_t bad = -1) {
  return std::make_shared<Numbers>(size, bad);
}

/// The samples of `count` batches, and of each the epoch.
std::vector<std::vector<std::int64_t>> take(DataLoader* loader, int count) {
  std::vector<std::vector<std::int64_t>> batches;
  for (int i = 0; i < count; ++i) {
    const SampleBatch batch = loader->next();
    batches.push_back(numbers_in(batch.inputs[0]));
    batches.back().push_back(batch.targets[0][0].item<std::int64_t>());
  }
  return batches;
}

TEST(DataLoader, GivesEverySampleOnceAnEpoch) {
  DataLoader loader(numbers(23), {.batch = 5, .seed = 3});
  ASSERT_EQ(loader.batches_per_epoch(), 5);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> seen;
    for (int b = 0; b < 5; ++b) {
      const SampleBatch batch = loader.next();
      EXPECT_EQ(batch.inputs[0].size(0), b < 4 ? 5 : 3);
      EXPECT_TRUE((batch.targets[0] == epoch).all().item<bool>());
      for (const std::int64_t sample : numbers_in(batch.inputs[0])) seen.push_back(sample);
    }
    std::sort(seen.begin(), seen.end());
    std::vector<std::int64_t> all(23);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all);
  }
}

// Workers, what is made ahead and where the run was resumed change nothing.
TEST(DataLoader, ResumesAnywhereWithTheSameBatches) {
  DataLoader plain(numbers(23), {.batch = 5, .seed = 3, .workers = 0});
  const auto expected = take(&plain, 14);  // to the middle of the third epoch
  for (const int workers : {0, 1, 2, 4}) {
    for (const int prefetch : {1, 3, 8}) {
      const LoaderOptions options{.batch = 5, .seed = 3, .workers = workers, .prefetch = prefetch};
      DataLoader first(numbers(23), options);
      for (int stop = 0; stop < 14; ++stop) {
        const auto saved = to_json(first.position()).dump();
        DataLoader second(numbers(23), options);
        second.seek(data_position_from_json(nlohmann::json::parse(saved)));
        EXPECT_EQ(second.position(), first.position());
        const auto rest = take(&second, 14 - stop);
        ASSERT_TRUE(std::equal(rest.begin(), rest.end(), expected.begin() + stop))
            << workers << " workers, " << prefetch << " ahead, at " << stop;
        take(&first, 1);
      }
    }
  }
}

TEST(DataLoader, SeeksBackAndForth) {
  DataLoader loader(numbers(10), {.batch = 4, .workers = 2});
  const DataPosition start = loader.position();
  const auto first = take(&loader, 5);
  const DataPosition later = loader.position();
  EXPECT_EQ(later.epoch, 1);
  EXPECT_EQ(later.batch, 2);
  const auto second = take(&loader, 2);
  loader.seek(start);
  EXPECT_EQ(take(&loader, 5), first);
  EXPECT_EQ(take(&loader, 2), second);
  loader.seek(later);
  EXPECT_EQ(take(&loader, 2), second);
}

TEST(DataLoader, SharesCoverEveryRowOnce) {
  const LoaderOptions options{.batch = 7, .seed = 5};
  DataLoader whole(numbers(30), options);
  for (int replicas = 1; replicas <= 2; ++replicas) {
    whole.seek({0, 0, whole.position().order});
    std::vector<std::unique_ptr<DataLoader>> parts;
    for (int replica = 0; replica < replicas; ++replica) {
      LoaderOptions own = options;
      own.shard = {replica, replicas};
      parts.push_back(std::make_unique<DataLoader>(numbers(30), own));
    }
    for (int b = 0; b < 10; ++b) {
      Tensors rows;
      for (const auto& part : parts) rows.push_back(part->next().inputs[0]);
      EXPECT_TRUE(torch::cat(rows).equal(whole.next().inputs[0])) << replicas << " " << b;
    }
  }
}

TEST(DataLoader, PassesAnErrorOnAndCanGoOnAfterwards) {
  for (const int workers : {0, 1, 3}) {
    const auto source = numbers(20, 9);
    DataLoader loader(source, {.batch = 4, .shuffle = false, .workers = workers});
    EXPECT_EQ(loader.next().inputs[0].size(0), 4);
    loader.next();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(refusal([&] { loader.next(); }), "[data] 'file' line 3: damaged");
      EXPECT_EQ(loader.position().batch, 2);
    }
    source->broken = false;
    loader.seek(loader.position());  // tries it again
    EXPECT_EQ(loader.next().inputs[0][0].item<std::int64_t>(), 8);
  }
}

TEST(DataLoader, RefusesOptionsThatDoNotFit) {
  const auto refused = [](const LoaderOptions& options) {
    return refusal([&] { DataLoader(numbers(10), options); });
  };
  EXPECT_EQ(refused({.workers = -1}), "[data] workers = -1; use 0 or more");
  EXPECT_EQ(refused({.prefetch = 0}), "[data] prefetch = 0; use 1 or more");
  EXPECT_EQ(refused({.batch = 0}), "[data] batch = 0; use 1 or more");
  EXPECT_THAT(refused({.batch = 3, .shard = {0, 2}}), HasSubstr("too few for 2 replicas"));
}

TEST(DataLoader, StaysWhereItIsIfAPositionIsRefused) {
  DataLoader loader(numbers(10), {.batch = 4});
  loader.next();
  const DataPosition here = loader.position();
  EXPECT_THAT(refusal([&] {
                loader.seek({0, 0, {11, 4, true, 1}});
              }),
              HasSubstr("samples was 11 and is 10"));
  EXPECT_EQ(loader.position(), here);
}

}  // namespace
}  // namespace pipewright
