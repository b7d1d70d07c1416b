#include "pipewright/transport/patience.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace pipewright {
namespace {

constexpr std::chrono::milliseconds kBetweenQuestions(10);

struct Call {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::exception_ptr failure;
};

void run(const std::function<void()>& work, Call* call) {
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(call->mutex);
  call->failure = failure;
  call->ended = true;
  call->changed.notify_all();
}

}  // namespace

bool call_with_patience(std::function<void()> call, const std::function<bool()>& given_up) {
  const auto state = std::make_shared<Call>();
  std::thread thread([state, work = std::move(call)] { run(work, state.get()); });
  std::unique_lock lock(state->mutex);
  while (!state->changed.wait_for(lock, kBetweenQuestions, [&] { return state->ended; })) {
    lock.unlock();
    if (given_up()) {
      thread.detach();
      return false;
    }
    lock.lock();
  }
  lock.unlock();
  thread.join();
  if (state->failure) std::rethrow_exception(state->failure);
  return true;
}

}  // namespace pipewright
