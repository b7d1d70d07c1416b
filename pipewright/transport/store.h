#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "pipewright/torch/compat_distributed.h"
#include "pipewright/transport/environment.h"

namespace pipewright {

/// Where the processes of a run leave each other texts and counts. A call may wait for ever where
/// the process that keeps it was stopped: see patience.h. One that waits holds up all others of the
/// same client, so each user has one of its own.
using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// The store at the place's master, under a prefix. `keep`: this process keeps it for the others.
/// Throws TransportError where that cannot be within the deadline.
StorePtr connect_store(const ProcessPlace& place, const std::string& prefix, bool keep,
                       std::chrono::duration<double> deadline);

/// Whether this process is the one that keeps the store.
bool keeps_store(const ProcessPlace& place);

/// Who keeps it, for people: "rank 0, which keeps the store,".
std::string keeper_words(const ProcessPlace& place);

void write_text(c10d::Store& store, const std::string& key, const std::string& text);
/// The text if there is one; does not wait for it.
std::optional<std::string> read_text(c10d::Store& store, const std::string& key);

/// "bye/3": what a rank says.
std::string key_of(const char* what, int rank);

/// The run's failure: of several that are told the first counts.
void publish_failure(c10d::Store& store, const std::string& why);
std::optional<std::string> published_failure(c10d::Store& store);

/// So long a reason may take to come, and others to read it.
inline constexpr std::chrono::duration<double> kMoment(2);

}  // namespace pipewright
