#pragma once

#include <vector>

#include "pipewright/launch/clock.h"
#include "pipewright/launch/connection.h"

namespace pipewright::launch {

/// How often a launcher that has nothing to say is heard.
inline Seconds ping_interval(Seconds deadline) { return std::min(Seconds(1), deadline / 4); }

/// Sends what waits and reads until the other sides have closed: a socket closed with bytes unread
/// would take back what was sent last. At most `patience`.
void say_farewell(const std::vector<Connection*>& connections, Seconds patience);

}  // namespace pipewright::launch
