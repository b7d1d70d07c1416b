#include "pipewright/launch/farewell.h"

#include <algorithm>

#include "pipewright/launch/poll_set.h"

namespace pipewright::launch {

void say_farewell(const std::vector<Connection*>& connections, Seconds patience) {
  const TimePoint until = after(Clock::now(), patience);
  for (;;) {
    PollSet set;
    bool all_lost = true;
    for (Connection* connection : connections) {
      connection->flush();
      if (!connection->sends_wait()) connection->finish_sending();
      if (connection->lost()) continue;
      all_lost = false;
      set.add(connection->fd(), connection->events(),
              [connection] { connection->receive(Clock::now()); });
    }
    if (all_lost || Clock::now() >= until) return;
    set.wait(until);
  }
}

}  // namespace pipewright::launch
