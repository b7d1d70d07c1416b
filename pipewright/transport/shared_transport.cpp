#include "pipewright/transport/shared_transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/transport/tags.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

/// Between looks at whether the run goes on; what ends a wait wakes it at once all the same.
constexpr std::chrono::milliseconds kBetweenLooks(50);

/// Texts that the ranks of a transport leave each other.
class Notes {
 public:
  Notes(const World& world, const std::vector<int>& processes, std::string name,
        std::chrono::duration<double> deadline)
      : world_(world), processes_(processes), name_(std::move(name)), deadline_(deadline) {}

  void post(const char* what, int rank, const nlohmann::json& note) const {
    world_.post(key(what, rank), note.dump());
  }
  nlohmann::json read(const char* what, int rank) const {
    return nlohmann::json::parse(world_.wait_for_text(
        key(what, rank), processes_[static_cast<std::size_t>(rank)], deadline_));
  }

 private:
  /// Replicas have a transport each, of other processes.
  std::string key(const char* what, int rank) const {
    return fmt::format("shared/{}/{}/{}/{}", name_, processes_[0], what, rank);
  }

  const World& world_;
  const std::vector<int>& processes_;
  std::string name_;
  std::chrono::duration<double> deadline_;
};

}  // namespace

SharedTransport::SharedTransport(World* world, std::unique_ptr<ProcessTransport> gloo,
                                 std::vector<int> processes, int rank, const std::string& name,
                                 std::chrono::duration<double> deadline,
                                 std::chrono::microseconds spin)
    : world_(world),
      gloo_(std::move(gloo)),
      blame_(world, processes, rank, deadline),
      deadline_(deadline),
      spin_(spin),
      to_(processes.size()),
      from_(processes.size()),
      exceptions_(std::uncaught_exceptions()) {
  const auto num_ranks = static_cast<int>(processes.size());
  const Notes notes(*world, processes, name, deadline);
  const std::string here = machine_identity();
  // Where each rank's memory for each other one is.
  std::vector<int> files(processes.size(), -1);
  for (std::size_t other = 0; other < processes.size(); ++other) {
    if (static_cast<int>(other) == rank) continue;
    to_[other] = std::make_unique<SharedOutbox>();
    files[other] = to_[other]->file();
  }
  notes.post("files", rank, {{"machine", here}, {"process", ::getpid()}, {"files", files}});
  std::vector<int> reached;
  for (int other = 0; other < num_ranks; ++other) {
    if (other == rank) continue;
    const nlohmann::json note = notes.read("files", other);
    if (here.empty() || note.at("machine") != here) continue;
    auto& inbox = from_[static_cast<std::size_t>(other)];
    inbox =
        SharedInbox::open(note.at("process"), note.at("files").at(static_cast<std::size_t>(rank)));
    if (inbox != nullptr) reached.push_back(other);
  }
  // A sender must know whether it was reached.
  notes.post("reached", rank, reached);
  for (int other = 0; other < num_ranks; ++other) {
    if (other == rank) continue;
    const auto theirs = notes.read("reached", other).get<std::vector<int>>();
    if (std::find(theirs.begin(), theirs.end(), rank) == theirs.end())
      to_[static_cast<std::size_t>(other)].reset();
  }
  listener_ = world_->listen([this] { abort(); });
}

SharedTransport::~SharedTransport() {
  if (world_->leaves_by_exception(exceptions_)) abort();
  wait_until_taken();
  world_->forget(listener_);
}

/// With this process its memory goes, and what is in it.
void SharedTransport::wait_until_taken() {
  const auto start = Clock::now();
  for (std::size_t rank = 0; rank < to_.size(); ++rank) {
    while (to_[rank] != nullptr && !to_[rank]->all_taken() && !aborted_) {
      if (Clock::now() - start > deadline_) {
        world_->fail(blame_.late(static_cast<int>(rank), /*sending=*/true));
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

void SharedTransport::send(int to_rank, const MessageKey& key, Message message) {
  const auto& outbox = to_[static_cast<std::size_t>(to_rank)];
  if (outbox == nullptr) return gloo_->send(to_rank, key, std::move(message));
  check_key(key);
  check_tensors(message);
  if (!aborted_) outbox->send(key, plain(std::move(message)));
}

void SharedTransport::expect(int from_rank, const MessageKey& key) {
  if (from_[static_cast<std::size_t>(from_rank)] == nullptr) gloo_->expect(from_rank, key);
}

Message SharedTransport::receive(int at_rank, int from_rank, const MessageKey& key) {
  const auto& inbox = from_[static_cast<std::size_t>(from_rank)];
  if (inbox == nullptr) return gloo_->receive(at_rank, from_rank, key);
  if (aborted_ || !inbox->has(key)) wait_for(inbox.get(), from_rank, key);
  try {
    return inbox->take(key);
  } catch (const TransportError& error) {  // the sender is gone, and its memory with it
    give_up(from_rank, key, error.what());
  }
}

void SharedTransport::wait_for(SharedInbox* inbox, int from_rank, const MessageKey& key) {
  world_->set_waiting(blame_.process(from_rank));
  const auto start = Clock::now();
  for (;;) {
    const bool closed = inbox->closed();  // before the look: what was sent first is there then
    if (!aborted_ && inbox->has(key)) break;
    if (aborted_) give_up(from_rank, key, "");
    if (closed) give_up(from_rank, key, "it closed the connection");
    if (Clock::now() - start > deadline_) {
      const std::string cause = blame_.late(from_rank, /*sending=*/false);
      world_->fail(cause);
      blame_.give_up(from_rank, key, cause);
    }
    inbox->wait(spin_, kBetweenLooks);
  }
  world_->set_waiting(-1);
}

/// As ProcessTransport does: a wait that was given up says nothing.
void SharedTransport::give_up(int from_rank, const MessageKey& key, const std::string& why) {
  const std::string cause = blame_.cause(from_rank, why, /*sending=*/false);
  if (!why.empty()) world_->fail(cause);
  blame_.give_up(from_rank, key, cause);
}

void SharedTransport::abort() {
  aborted_ = true;
  for (const auto& inbox : from_) {
    if (inbox != nullptr) inbox->wake();
  }
  gloo_->abort();
}

int SharedTransport::num_shared() const {
  return static_cast<int>(
      std::count_if(to_.begin(), to_.end(), [](const auto& one) { return one != nullptr; }));
}

}  // namespace pipewright
