#pragma once

#include <string>

namespace pipewright {

/// The address of this machine from which `host` is reached: loopback for a loopback host. Nothing
/// is sent. Throws TransportError for a host that has no address.
std::string local_address(const std::string& host);

}  // namespace pipewright
