#include "pipewright/transport/gather.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "pipewright/base/error.h"
#include "pipewright/base/words.h"
#include "pipewright/transport/patience.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::milliseconds kPause(20);
constexpr const char* kCame = "came";          // counts: of each rank, and of all
constexpr const char* kKnow = "know";          // counts those who have read the failure
constexpr const char* kGathered = "gathered";  // all were there

[[noreturn]] void refuse(const std::string& why) { throw TransportError("transport", why); }

/// An error that concerns nobody else.
class TurnedAway : public TransportError {
 public:
  using TransportError::TransportError;
};

/// One coming together, with its end.
struct Gathering {
  ProcessPlace place;
  std::string prefix;
  bool again = false;
  Seconds deadline{0};
  Clock::time_point start = Clock::now();

  Seconds left() const { return deadline - (Clock::now() - start); }
};

/// A process more of a run that goes on is turned away; while all still gather nobody can say which
/// of the two is the right one.
void come(c10d::Store& store, const Gathering& g) {
  store.add(kCame, 1);
  if (store.add(key_of(kCame, g.place.rank), 1) > 1) {
    const std::string why =
        fmt::format("two processes were started as rank {} (RANK) of {}; give each its own",
                    g.place.rank, g.place.size);
    if (store.check({kGathered})) throw TurnedAway("transport", why);
    refuse(why);
  }
  write_text(store, key_of("join", g.place.rank), std::to_string(g.place.size));
}

void check_size(const std::string& size, int rank, const ProcessPlace& own) {
  if (size == std::to_string(own.size)) return;
  refuse(
      fmt::format("rank {} was started as one of {} processes, rank {} as one of {}; start all "
                  "with the same number",
                  own.rank, own.size, rank, size));
}

void wait_for_all(c10d::Store& store, const Gathering& g) {
  std::vector<int> missing;
  for (int rank = 0; rank < g.place.size; ++rank) missing.push_back(rank);
  while (true) {
    if (const auto why = published_failure(store)) refuse(*why);
    std::erase_if(missing, [&](int rank) {
      const auto size = read_text(store, key_of("join", rank));
      if (size) check_size(*size, rank, g.place);
      return size.has_value();
    });
    if (missing.empty()) return;
    if (g.left() < Seconds(0)) {
      refuse(
          fmt::format("rank {} waited {} s for the processes to come; rank {} did not; see why "
                      "in their logs, or raise the deadline",
                      g.place.rank, g.deadline.count(), fmt::join(missing, ", ")));
    }
    std::this_thread::sleep_for(kPause);
  }
}

/// Those who came shall know why: the store is kept until they do, or for a moment.
void tell(c10d::Store& store, const Gathering& g, const std::string& why) {
  if (!published_failure(store)) publish_failure(store, why);
  if (!keeps_store(g.place)) {
    store.add(kKnow, 1);
    return;
  }
  const auto start = Clock::now();
  while (store.add(kKnow, 0) < store.add(kCame, 0) - 1 && Clock::now() - start < kMoment)
    std::this_thread::sleep_for(kPause);
}

/// The message of an error without its place, which comes before it anyway.
std::string without_place(const std::string& message) {
  const std::string place = "[transport] ";
  return message.starts_with(place) ? message.substr(place.size()) : message;
}

/// False where the store went away, and another may come.
bool joined(c10d::Store& store, const Gathering& g) {
  try {
    try {
      come(store, g);
      wait_for_all(store, g);
      write_text(store, kGathered, "yes");
      return true;
    } catch (const TurnedAway&) {
      throw;
    } catch (const TransportError& error) {
      tell(store, g, without_place(error.what()));
      throw;
    }
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception& error) {
    if (g.again && g.left() > Seconds(0)) return false;
    refuse(fmt::format("{} was lost before all processes had come: {}; see why in its log",
                       keeper_words(g.place), first_line(error.what())));
  }
}

StorePtr gather_now(const Gathering& g) {
  while (true) {
    StorePtr store =
        connect_store(g.place, g.prefix, keeps_store(g.place), std::max(g.left(), Seconds(0.1)));
    if (joined(*store, g)) return store;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

StorePtr gather(const ProcessPlace& place, const std::string& prefix, bool again,
                Seconds deadline) {
  const Gathering g{place, prefix, again, deadline};
  const auto store = std::make_shared<StorePtr>();
  const bool ended = call_with_patience([g, store] { *store = gather_now(g); },
                                        [&] { return g.left() < -kMoment; });
  if (ended) return *store;
  refuse(
      fmt::format("rank {} reached {}:{} (MASTER_ADDR, MASTER_PORT), but no store answered "
                  "there within {} s; is another program using the port?",
                  place.rank, place.master_address, place.master_port, deadline.count()));
}

}  // namespace pipewright
