#include "pipewright/launch/socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "pipewright/base/error.h"

namespace pipewright::launch {
namespace {

/// Below those that systems hand out for outgoing connections: one of these could take a port in
/// the seconds until rank 0 listens there.
constexpr int kFirstPort = 20000;
constexpr int kLastPort = 28999;
constexpr int kPortsTried = 32;

const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

sockaddr* generic(Address& address) { return reinterpret_cast<sockaddr*>(&address.storage); }

void set_port(Address& address, int port) {
  const auto wire = htons(static_cast<std::uint16_t>(port));
  if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = wire;
  } else {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = wire;
  }
}

int port_of(const Address& address) {
  if (address.storage.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

/// Not open where it cannot be, as on a machine without IPv6.
UniqueFd make_socket(const Address& address) {
  return UniqueFd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void set_option(int fd, int level, int option) {
  const int on = 1;
  setsockopt(fd, level, option, &on, sizeof(on));
}

Address own_address(int fd) {
  Address address;
  address.size = sizeof(address.storage);
  getsockname(fd, generic(address), &address.size);
  return address;
}

UniqueFd bind_first(const std::vector<Address>& addresses, const Endpoint& endpoint) {
  int error = EADDRNOTAVAIL;
  for (const Address& address : addresses) {
    UniqueFd fd = make_socket(address);
    if (!fd.open()) continue;
    // A connection of an earlier run that is still being forgotten is no reason to refuse.
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR);
    if (bind(fd.get(), generic(address), address.size) == 0 && listen(fd.get(), SOMAXCONN) == 0)
      return fd;
    error = errno;
    if (error == EADDRINUSE) break;
  }
  const char* advice = error == EADDRINUSE ? "another program listens there; choose another port"
                       : error == EADDRNOTAVAIL
                           ? "it is no address of this machine; --master names node 0"
                           : "choose another address";
  throw TransportError("launch", fmt::format("cannot listen at {}: {}; {}", endpoint.text(),
                                             std::strerror(error), advice));
}

}  // namespace

std::string Address::text() const {
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(generic(*this), size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "an unknown address";
  return Endpoint{host.data(), port_of(*this)}.text();
}

std::vector<Address> resolve(const Endpoint& endpoint, TimePoint until) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int error = 0;
  for (;;) {
    error = getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &found);
    if (error != EAI_AGAIN || Clock::now() >= until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  if (error != 0) {
    const std::string what =
        fmt::format("cannot find the host '{}' of --master: {}; check its name", endpoint.host,
                    gai_strerror(error));
    if (error == EAI_AGAIN) throw TransportError("launch", what);
    throw InvalidArgument("launch", what);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    Address address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    set_port(address, endpoint.port);
    addresses.push_back(address);
  }
  return addresses;
}

UniqueFd listen_at(const std::vector<Address>& addresses, const Endpoint& endpoint) {
  return bind_first(addresses, endpoint);
}

void check_port_is_free(const std::vector<Address>& addresses, const Endpoint& endpoint) {
  bind_first(addresses, endpoint);
}

int free_port(std::vector<Address> addresses, const Endpoint& endpoint) {
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirstPort, kLastPort);
  for (int i = 0; i < kPortsTried; ++i) {
    const int port = ports(random);
    for (Address& address : addresses) set_port(address, port);
    try {
      bind_first(addresses, endpoint);
      return port;
    } catch (const TransportError&) {
      continue;
    }
  }
  for (Address& address : addresses) set_port(address, 0);
  return port_of(own_address(bind_first(addresses, endpoint).get()));
}

Connecting begin_connect(const Address& address) {
  Connecting result{make_socket(address), 0};
  if (!result.fd.open()) return {UniqueFd(), errno};
  set_option(result.fd.get(), IPPROTO_TCP, TCP_NODELAY);
  if (connect(result.fd.get(), generic(address), address.size) != 0) result.error = errno;
  return result;
}

int finish_connect(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  if (error != 0) return error;
  Address peer;
  peer.size = sizeof(peer.storage);
  if (getpeername(fd, generic(peer), &peer.size) != 0) return errno;
  return peer.text() == own_address(fd).text() ? ECONNREFUSED : 0;
}

UniqueFd accept_one(int listener, std::string& peer) {
  Address address;
  address.size = sizeof(address.storage);
  UniqueFd fd(accept4(listener, generic(address), &address.size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.open()) return fd;
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  peer = address.text();
  return fd;
}

}  // namespace pipewright::launch
