#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "pipewright/launch/clock.h"
#include "pipewright/launch/options.h"
#include "pipewright/launch/unique_fd.h"

namespace pipewright::launch {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  /// "10.0.0.1:29500"
  std::string text() const;
};

/// The addresses of a host's name, asked for again until `until` where the name service does not
/// answer. May block. Throws InvalidArgument where there is no such host, TransportError where it
/// could not be found out.
std::vector<Address> resolve(const Endpoint& endpoint, TimePoint until);

/// Listens at the first of these addresses that is this machine's. Throws TransportError where the
/// port is in use or no address is ours. Does not block.
UniqueFd listen_at(const std::vector<Address>& addresses, const Endpoint& endpoint);

/// A port, of the first of these addresses that is this machine's, that nobody listens on now. It
/// is free until somebody takes it: use it at once. Throws TransportError where no address is ours.
int free_port(std::vector<Address> addresses, const Endpoint& endpoint);

/// Throws TransportError unless a program may listen at this port of ours.
void check_port_is_free(const std::vector<Address>& addresses, const Endpoint& endpoint);

/// Begins to connect; `error` is 0 or EINPROGRESS where it may succeed.
struct Connecting {
  UniqueFd fd;
  int error = 0;
};
Connecting begin_connect(const Address& address);

/// 0 where a begun connection is there, else its error. (A socket that was connected to itself, as
/// may happen when nobody listens on a port of this machine, is refused.)
int finish_connect(int fd);

/// A waiting connection, not blocking; not open where there is none.
UniqueFd accept_one(int listener, std::string& peer);

}  // namespace pipewright::launch
