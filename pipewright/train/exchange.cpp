#include "pipewright/train/exchange.h"

#include <fmt/format.h>

#include <atomic>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

/// They are made in the same order in all processes.
int next_number() {
  static std::atomic<int> number = 0;
  return number++;
}

}  // namespace

Exchange::Exchange(std::shared_ptr<World> world, std::string name,
                   std::chrono::duration<double> deadline)
    : world_(std::move(world)), name_(std::move(name)), deadline_(deadline) {}

std::string Exchange::key(int round, int rank) const {
  return fmt::format("{}/{}/{}", name_, round, rank);
}

std::vector<nlohmann::json> Exchange::together(const std::function<nlohmann::json()>& work,
                                               double more_seconds) {
  if (!world_) {
    all_came_ = true;
    return {work()};
  }
  nlohmann::json own;
  std::exception_ptr failure;
  try {
    own["value"] = work();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    own["error"] = error.what();
  }
  const int round = num_rounds_++;
  // A message may quote bytes of a file or of a name: they must not keep the text from being sent.
  world_->post(key(round, rank()),
               own.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::vector<nlohmann::json> all;
  try {
    const std::chrono::duration<double> more(more_seconds);
    for (int other = 0; other < size(); ++other) {
      all.push_back(other == rank() ? own
                                    : nlohmann::json::parse(world_->wait_for_text(
                                          key(round, other), other, deadline_ + more)));
    }
    all_came_ = true;
  } catch (const std::exception&) {
    if (!failure) throw;
  }
  if (failure) std::rethrow_exception(failure);
  for (int other = 0; other < size(); ++other) {
    auto& text = all[static_cast<std::size_t>(other)];
    if (text.contains("error")) {
      throw Error("checkpoint",
                  fmt::format("rank {} failed: {}", other, text["error"].get<std::string>()));
    }
    text = nlohmann::json(std::move(text["value"]));
  }
  return all;
}

void Exchange::forget() const {
  if (!world_ || !is_first()) return;
  for (int round = 0; round < num_rounds_; ++round) {
    for (int rank = 0; rank < size(); ++rank) world_->forget_text(key(round, rank));
  }
}

Exchanges::Exchanges(std::shared_ptr<World> world, const std::string& name,
                     std::chrono::duration<double> deadline)
    : world_(std::move(world)),
      name_(fmt::format("{}{}", name, next_number())),
      deadline_(deadline) {}

/// A name is safe after two other exchanges, see end().
Exchange Exchanges::begin() {
  constexpr int kNames = 3;
  return {world_, fmt::format("{}/{}", name_, num_begun_++ % kNames), deadline_};
}

/// Where all came to it, whether it went well or not, all are beyond the exchanges before it: the
/// first of them lets go of their texts. So they are gone when the next exchange begins anywhere,
/// and the one after that may use their names.
void Exchanges::end(const Exchange& exchange) noexcept {
  if (exchange.all_came()) {
    try {
      for (const Exchange& one : before_) one.forget();
    } catch (const std::exception&) {
      // The store is gone: whoever needs it next says so.
    }
    before_.clear();
  }
  before_.push_back(exchange);
}

}  // namespace pipewright
