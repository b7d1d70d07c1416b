#include "pipewright/transport/signs_of_life.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

SignsOfLife::SignsOfLife(ProcessPlace place, Seconds deadline)
    : place_(std::move(place)),
      deadline_(deadline),
      interval_(std::min(Seconds(0.5), deadline / 10)),
      lives_(static_cast<std::size_t>(place_.size)) {}

void SignsOfLife::talk(c10d::Store& store) {
  try {
    do {
      beat(store);
    } while (!sleep());
    publish(store);
    write_text(store, key_of("bye", place_.rank), "bye");
    if (keeps_store(place_)) linger(store);
  } catch (const std::exception&) {
    if (place_.store_runs || !gone(0)) failure_.set(lost_store_words());
  }
  const std::lock_guard lock(mutex_);
  talked_ = true;
  changed_.notify_all();
}

/// True at the end.
bool SignsOfLife::sleep() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, interval_, [&] { return ending_ || to_publish_.has_value(); });
  return ending_;
}

/// One round of talk with the store.
void SignsOfLife::beat(c10d::Store& store) {
  store.add(key_of("pulse", place_.rank), 1);
  publish(store);
  learn(store);
  tell_waiting(store);
  for (int rank = 0; rank < place_.size; ++rank) {
    if (rank != place_.rank) look_at(store, rank);
  }
  const std::lock_guard lock(mutex_);
  store_answered_ = awake_;
}

void SignsOfLife::publish(c10d::Store& store) {
  std::optional<std::string> why;
  {
    const std::lock_guard lock(mutex_);
    why = to_publish_;
  }
  if (!why) return;
  publish_failure(store, *why);
  const std::lock_guard lock(mutex_);
  to_publish_.reset();
  changed_.notify_all();
}

void SignsOfLife::learn(c10d::Store& store) {
  if (told_) return;
  const auto why = published_failure(store);
  if (!why) return;
  failure_.set(*why);
  write_text(store, key_of("knows", place_.rank), "yes");
  told_ = true;
}

void SignsOfLife::tell_waiting(c10d::Store& store) {
  int now = -1;
  {
    const std::lock_guard lock(mutex_);
    if (awake_ - waiting_since_ > interval_) now = waiting_;
  }
  if (std::exchange(told_waiting_, now) != now)
    write_text(store, key_of("waits", place_.rank), std::to_string(now));
}

void SignsOfLife::set_waiting(int rank) {
  const std::lock_guard lock(mutex_);
  waiting_ = rank;
  waiting_since_ = awake_;
}

int SignsOfLife::waits(c10d::Store& store, int rank) {
  const auto text = read_text(store, key_of("waits", rank));
  return text ? std::stoi(*text) : -1;
}

void SignsOfLife::look_at(c10d::Store& store, int rank) {
  const bool gone = store.check({key_of("bye", rank)});
  const bool knows = failure_.get() && store.check({key_of("knows", rank)});
  const std::int64_t pulse = store.add(key_of("pulse", rank), 0);
  const std::lock_guard lock(mutex_);
  Life& life = lives_[static_cast<std::size_t>(rank)];
  life.gone = gone;
  life.knows = knows;
  if (std::exchange(life.pulse, pulse) != pulse) life.seen = awake_;
}

void SignsOfLife::linger(c10d::Store& store) {
  const auto start = Clock::now();
  const Seconds before = [&] {
    const std::lock_guard lock(mutex_);
    return awake_;
  }();
  while (true) {
    for (int rank = 1; rank < place_.size; ++rank) look_at(store, rank);
    const Seconds passed = Clock::now() - start;
    {
      const std::lock_guard lock(mutex_);
      awake_ = before + passed;  // nobody watches any more
    }
    if (passed > deadline_ || all_may_go(before + passed)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// Who gave no sign for a moment after a failure is taken for dead.
bool SignsOfLife::all_may_go(Seconds now) const {
  const bool failed = failure_.get().has_value();
  const std::lock_guard lock(mutex_);
  return std::all_of(lives_.begin() + 1, lives_.end(), [&](const Life& life) {
    return life.gone || (failed && (life.knows || now - life.seen > kMoment));
  });
}

void SignsOfLife::watch() {
  while (true) {
    std::optional<std::string> why;
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, interval_, [&] { return ending_; })) return;
      const auto now = Clock::now();
      why = tick(now - std::exchange(ticked_, now));
    }
    if (why) fail(*why);
  }
}

/// With the lock held, as the next ones.
std::optional<std::string> SignsOfLife::tick(Seconds passed) {
  awake_ += std::min(passed, 4 * interval_);
  if (passed > deadline_ / 2) {
    stopped_for_ = passed;
    stopped_at_ = awake_;
  }
  if (passed > deadline_) return stopped_words(passed);
  return who_is_silent();
}

std::string SignsOfLife::stopped_words(Seconds passed) const {
  return fmt::format("rank {} was itself stopped for {:.1f} s; the deadline is {} s", place_.rank,
                     passed.count(), deadline_.count());
}

/// A process that was stopped may find the others gone before watch() notices why; and they may
/// have given it up a little earlier than it was stopped for the whole deadline.
std::string SignsOfLife::lost_store_words() const {
  const std::lock_guard lock(mutex_);
  const Seconds passed = Clock::now() - ticked_;
  if (passed > deadline_ / 2) return stopped_words(passed);
  if (stopped_for_ > Seconds(0) && awake_ - stopped_at_ < deadline_)
    return stopped_words(stopped_for_);
  return keeper_words(place_) + " cannot be reached any more";
}

/// A rank's silence counts only as far as the store, which tells of it, has answered.
std::optional<std::string> SignsOfLife::who_is_silent() const {
  const bool store_matters = place_.store_runs || !lives_[0].gone;
  if (store_matters && awake_ - store_answered_ > deadline_) {
    return fmt::format("{} gave no sign of life for {} s", keeper_words(place_), deadline_.count());
  }
  for (std::size_t rank = 0; rank < lives_.size(); ++rank) {
    if (static_cast<int>(rank) == place_.rank || lives_[rank].gone) continue;
    if (store_answered_ - lives_[rank].seen > deadline_)
      return fmt::format("rank {} gave no sign of life for {} s", rank, deadline_.count());
  }
  return std::nullopt;
}

bool SignsOfLife::end() {
  const bool failed = failure_.get().has_value();
  std::unique_lock lock(mutex_);
  ending_ = true;
  changed_.notify_all();
  // Without a failure the store may be silent only for as long as a deadline allows.
  const Seconds most = (failed && !keeps_store(place_)) ? kMoment : deadline_ + kMoment;
  return changed_.wait_for(lock, most, [&] { return talked_; });
}

void SignsOfLife::fail(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.get()) return;
    to_publish_ = why;
    changed_.notify_all();
  }
  failure_.set(why);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kMoment, [&] { return !to_publish_ || talked_; });
}

bool SignsOfLife::gone(int rank) const {
  const std::lock_guard lock(mutex_);
  return lives_[static_cast<std::size_t>(rank)].gone;
}

}  // namespace pipewright
