#include "pipewright/transport/store.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

constexpr const char* kFailed = "failed";    // counts
constexpr const char* kFailure = "failure";  // the first one's words

/// The stores that this process keeps, by port, until it ends: the next world uses the last one's.
/// To close one resets the connection of a process that is quick to ask for the next, which
/// LibTorch 1.13 answers by ending it.
c10::intrusive_ptr<c10d::TCPStore> kept_store(const std::string& address,
                                              const c10d::TCPStoreOptions& options) {
  static std::mutex mutex;
  static auto* kept = new std::map<std::uint16_t, c10::intrusive_ptr<c10d::TCPStore>>();
  const std::lock_guard lock(mutex);
  auto& store = (*kept)[options.port];
  if (!store) store = c10::make_intrusive<c10d::TCPStore>(address, options);
  return store;
}

}  // namespace

bool keeps_store(const ProcessPlace& place) { return place.rank == 0 && !place.store_runs; }

std::string keeper_words(const ProcessPlace& place) {
  return place.store_runs ? fmt::format("the store of {} at {}:{}", place.launched_by,
                                        place.master_address, place.master_port)
                          : "rank 0, which keeps the store,";
}

StorePtr connect_store(const ProcessPlace& place, const std::string& prefix, bool keep,
                       std::chrono::duration<double> deadline) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(place.master_port);
  options.isServer = keep;
  options.waitWorkers = false;
  options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(deadline);
  try {
    return c10::make_intrusive<c10d::PrefixStore>(
        prefix, keep ? kept_store(place.master_address, options)
                     : c10::make_intrusive<c10d::TCPStore>(place.master_address, options));
  } catch (const std::exception& error) {
    const std::string reason = error.what();
    throw TransportError(
        "transport",
        fmt::format("rank {} cannot {} {}:{} (MASTER_ADDR, MASTER_PORT): {}", place.rank,
                    keep ? "keep the store at" : "reach the store of rank 0 at",
                    place.master_address, place.master_port, reason.substr(0, reason.find('\n'))));
  }
}

void write_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::optional<std::string> read_text(c10d::Store& store, const std::string& key) {
  if (!store.check({key})) return std::nullopt;
  const std::vector<std::uint8_t> bytes = store.get(key);
  return std::string(bytes.begin(), bytes.end());
}

std::string key_of(const char* what, int rank) { return fmt::format("{}/{}", what, rank); }

void publish_failure(c10d::Store& store, const std::string& why) {
  if (store.add(kFailed, 1) == 1) write_text(store, kFailure, why);
}

std::optional<std::string> published_failure(c10d::Store& store) {
  return read_text(store, kFailure);
}

}  // namespace pipewright
