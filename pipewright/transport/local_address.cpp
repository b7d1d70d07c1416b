#include "pipewright/transport/local_address.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

[[noreturn]] void refuse(const std::string& host, const char* why) {
  throw TransportError(
      "transport", fmt::format("there is no way to '{}' (MASTER_ADDR) from here: {}", host, why));
}

/// Connecting a datagram socket chooses a route, and nothing else.
std::string address_towards(const addrinfo& to) {
  const int socket = ::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return {};
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  std::array<char, NI_MAXHOST> text{};
  const bool found = ::connect(socket, to.ai_addr, to.ai_addrlen) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
                     ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(),
                                   text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  ::close(socket);
  return found ? text.data() : std::string();
}

}  // namespace

std::string local_address(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), "1", &hints, &found);
  if (error != 0) refuse(host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    std::string address = address_towards(*one);
    if (!address.empty()) return address;
  }
  refuse(host, "no route");
}

}  // namespace pipewright
