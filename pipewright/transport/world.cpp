#include "pipewright/transport/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <exception>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/words.h"
#include "pipewright/transport/gather.h"
#include "pipewright/transport/local_address.h"
#include "pipewright/transport/patience.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

[[noreturn]] void refuse(const std::string& why) { throw TransportError("transport", why); }

/// All processes make their worlds in the same order: the number tells them apart. Without it one
/// that is quick would take the signs of the last world for those of the next.
int next_world() {
  static std::atomic<int> number{0};
  return number++;
}

/// A write to a process that is gone shall be an error of that write, with words; by default it
/// ends this process without any. Neither Gloo nor the store asks for that by itself. A handler
/// of the program stays.
void survive_broken_pipes() {
  struct sigaction now = {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

/// Looks again and again: a store that is asked to wait answers nobody else of this client.
std::optional<std::string> poll_text(c10d::Store& store, const std::string& key,
                                     const std::function<bool()>& given_up) {
  auto pause = std::chrono::milliseconds(1);
  while (!given_up()) {
    if (auto text = read_text(store, key)) return text;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
  return std::nullopt;
}

}  // namespace

World::World(ProcessPlace place, WorldOptions options)
    : place_(std::move(place)),
      options_(std::move(options)),
      exceptions_(std::uncaught_exceptions()) {
  survive_broken_pipes();
  const int number = next_world();
  const std::string prefix = fmt::format("pipewright/{}/{}", place_.restart, number);
  address_ = options_.address.empty() ? local_address(place_.master_address) : options_.address;
  store_ = gather(place_, prefix, number > 0 || place_.restart > 0, options_.start_deadline);
  const StorePtr own = connect_store(place_, prefix, false, options_.start_deadline);
  signs_ = std::make_shared<SignsOfLife>(place_, options_.deadline);
  // The threads hold what they use: one that waits for a store that does not answer is left behind.
  talk_ = std::thread([signs = signs_, own] { signs->talk(*own); });
  watch_ = std::thread([signs = signs_] { signs->watch(); });
}

World::~World() {
  leaves_by_exception(exceptions_);
  const bool talked = signs_->end();
  watch_.join();
  talked ? talk_.join() : talk_.detach();
}

StorePtr World::store(const std::string& name) const {
  return c10::make_intrusive<c10d::PrefixStore>(name, store_);
}

void World::guarded(const std::string& what, Seconds deadline, std::function<void()> call) const {
  const auto start = Clock::now();
  const auto late = [&] { return Clock::now() - start > deadline; };
  std::string why;
  try {
    if (call_with_patience(std::move(call), [&] { return failure().has_value() || late(); }))
      return;
    why = fmt::format("they were not there within {} s; raise the deadline if that is too short",
                      deadline.count());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    why = first_line(error.what());
  }
  const std::string waited = fmt::format("rank {} was waiting for {}", place_.rank, what);
  refuse(fmt::format("{}; {}", failure_or(why), waited));
}

void World::post(const std::string& key, const std::string& text) const {
  guarded("the store", options_.deadline,
          [texts = store("texts"), key, text] { write_text(*texts, key, text); });
}

std::string World::wait_for_text(const std::string& key, int rank, Seconds deadline) const {
  const auto text = std::make_shared<std::optional<std::string>>();
  const auto start = Clock::now();
  const auto given_up = [signs = signs_, start, deadline] {
    return signs->failure().get() || Clock::now() - start > deadline;
  };
  const auto poll = [texts = store("texts"), key, text, given_up] {
    *text = poll_text(*texts, key, given_up);
  };
  std::optional<std::string> why;
  try {
    if (call_with_patience(poll, given_up) && *text) return **text;
    why = failure();
  } catch (const std::exception& error) {
    why = failure_or("the store failed: " + first_line(error.what()));
  }
  if (why) {
    refuse(
        fmt::format("{}; rank {} was waiting for '{}' of rank {}", *why, place_.rank, key, rank));
  }
  refuse(
      fmt::format("rank {} waited {} s for '{}' of rank {}; see why in its log, or raise the "
                  "deadline",
                  place_.rank, deadline.count(), key, rank));
}

void World::forget_text(const std::string& key) const {
  guarded("the store", options_.deadline, [texts = store("texts"), key] { texts->deleteKey(key); });
}

std::vector<int> World::chain_of_waits(int first) const {
  const auto chain = std::make_shared<std::vector<int>>(1, first);
  const auto follow = [signs = store_, chain, own = place_.rank] {
    while (true) {
      const int next = SignsOfLife::waits(*signs, chain->back());
      if (next < 0 || next == own) return;
      if (std::find(chain->begin(), chain->end(), next) != chain->end()) return;
      chain->push_back(next);
    }
  };
  try {
    guarded("the store", kMoment, follow);
  } catch (const Error&) {
    return {first};
  }
  return *chain;
}

bool World::leaves_by_exception(int exceptions_before) {
  if (std::uncaught_exceptions() <= exceptions_before) return false;
  fail(fmt::format("rank {} left the run because of an exception in its program; see its log",
                   place_.rank));
  return true;
}

void World::fail(const std::string& why) { signs_->fail(why); }

std::optional<std::string> World::failure() const { return signs_->failure().get(); }

std::string World::failure_or(const std::string& else_this) const {
  return signs_->failure().wait(kMoment).value_or(else_this);
}

int World::listen(std::function<void()> wake) { return signs_->failure().listen(std::move(wake)); }

void World::forget(int listener) { signs_->failure().forget(listener); }

}  // namespace pipewright
