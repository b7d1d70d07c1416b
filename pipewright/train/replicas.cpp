#include "pipewright/train/replicas.h"

#include <fmt/format.h>

#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/base/words.h"
#include "pipewright/transport/gloo.h"
#include "pipewright/transport/nccl.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

/// All values one after the other, on the CPU.
torch::Tensor flatten(const Tensors& tensors) {
  Tensors parts;
  for (const auto& tensor : tensors) parts.push_back(tensor.detach().reshape({-1}).cpu());
  return torch::cat(parts);
}

void spread(const torch::Tensor& flat, const Tensors& tensors) {
  const torch::NoGradGuard no_grad;
  std::int64_t at = 0;
  for (const auto& tensor : tensors) {
    tensor.detach().copy_(flat.slice(0, at, at + tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

}  // namespace

Replicas::Replicas(const Grid& grid, const Strategy& strategy)
    : grid_(grid), deadline_(strategy.deadline_seconds) {
  const auto next = [&] { return fmt::format("{}/{}", next_group(), grid.rank); };
  group_ = make_gloo_group(*grid.world, next(), grid.replica, grid.replicas,
                           std::chrono::duration_cast<std::chrono::milliseconds>(deadline_));
  if (strategy.transport == "nccl")
    sums_ = make_nccl_group(*grid.world, next(), grid.replica, grid.replicas);
}

/// A sum that another replica never joins would hold up the end of its threads: they are left
/// behind.
Replicas::~Replicas() {
  if (!grid_.world->failure()) return;
  (void)group_.release();
  if (!sums_) return;
  compat::abort_group(*sums_);
  (void)sums_.release();
}

void Replicas::give_up(const std::string& why) {
  const std::string unnamed =
      fmt::format("a replica of rank {} was lost: {}", grid_.rank, first_line(why));
  // Its connections tell which one it was, after a moment in which it might have told why itself.
  std::string failure = grid_.world->failure_or(unnamed);
  if (failure == unnamed) failure = grid_.world->failure_or(unnamed);
  grid_.world->fail(failure);
  throw TransportError("transport",
                       fmt::format("{}; replica {} of rank {} was waiting for the other replicas",
                                   failure, grid_.replica, grid_.rank));
}

/// Looks again and again: such a wait cannot be woken.
void Replicas::wait(const c10::intrusive_ptr<c10d::Work>& work) {
  const auto start = Clock::now();
  for (int looks = 0; !work->isCompleted(); ++looks) {
    if (grid_.world->failure()) give_up("");
    if (Clock::now() - start > deadline_)
      give_up(fmt::format("the others did not come within {} s", deadline_.count()));
    constexpr int kPatience = 2000;
    if (looks < kPatience) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  try {
    work->wait();
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

std::vector<std::vector<double>> Replicas::gather(const std::vector<double>& numbers) {
  // Lists may differ in length, messages may not.
  const Tensors lengths =
      gather_equal(torch::tensor({static_cast<double>(numbers.size())}, torch::kFloat64));
  std::int64_t most = 0;
  for (const auto& length : lengths)
    most = std::max(most, static_cast<std::int64_t>(length.item<double>()));
  torch::Tensor own = torch::zeros({most}, torch::kFloat64);
  own.slice(0, 0, static_cast<std::int64_t>(numbers.size()))
      .copy_(torch::tensor(numbers, torch::kFloat64));
  std::vector<std::vector<double>> result;
  const Tensors all = most > 0 ? gather_equal(own) : lengths;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto* first = all[i].data_ptr<double>();
    result.emplace_back(first, first + static_cast<std::ptrdiff_t>(lengths[i].item<double>()));
  }
  return result;
}

Tensors Replicas::gather_equal(torch::Tensor own) {
  std::vector<Tensors> all(1);
  for (int i = 0; i < size(); ++i) all[0].push_back(torch::empty_like(own));
  Tensors owns = {std::move(own)};
  wait(group_->allgather(all, owns));
  return std::move(all[0]);
}

std::vector<double> Replicas::sum(const std::vector<double>& numbers) {
  std::vector<double> sums(numbers.size());
  for (const auto& of_replica : gather(numbers)) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_replica[i];
  }
  return sums;
}

void Replicas::broadcast(const Tensors& tensors, int root) {
  std::vector<Tensors> groups;
  for (const auto& tensor : tensors) {
    const auto same = [&](const Tensors& group) { return group[0].dtype() == tensor.dtype(); };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) found = groups.insert(groups.end(), Tensors());
    found->push_back(tensor);
  }
  for (const Tensors& group : groups) {
    // As bytes: Gloo does not know every dtype.
    const torch::Tensor flat = flatten(group);
    Tensors bytes = {flat.view(torch::kByte)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    wait(group_->broadcast(bytes, options));
    if (number() != root) spread(flat, group);
  }
}

Replicas::Pending Replicas::start_sum(torch::Tensor flat) {
  Tensors tensors = {flat};
  try {
    return {std::move(flat), (sums_ ? sums_ : group_)->allreduce(tensors)};
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

void Replicas::finish(const Pending& pending) { wait(pending.work); }

}  // namespace pipewright
