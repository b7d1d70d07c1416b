#include "pipewright/launch/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"

namespace pipewright::launch {
namespace {

void check_nodes(const LaunchOptions& options) {
  if (options.nnodes < 1 || options.nnodes > kMostNodes) {
    throw InvalidArgument(
        "--nnodes", fmt::format("{} is not a number from 1 to {}", options.nnodes, kMostNodes));
  }
  if (options.nnodes > 1 && !options.master) {
    throw InvalidArgument("--nnodes",
                          fmt::format("{} nodes need --master HOST:PORT, an address of node 0 that "
                                      "the others reach; give every node the same",
                                      options.nnodes));
  }
  if (options.node_rank < 0 || options.node_rank >= options.nnodes) {
    throw InvalidArgument("--node-rank",
                          fmt::format("{} is not a number from 0 to {}; nodes of --nnodes {} are "
                                      "counted from 0",
                                      options.node_rank, options.nnodes - 1, options.nnodes));
  }
}

void check_seconds(Seconds seconds, double least, const char* option) {
  if (!(seconds.count() >= least) || seconds.count() > kMostSeconds) {
    throw InvalidArgument(
        option, fmt::format("{} is not a number of seconds from {} to {}",
                            format_number(seconds.count()), least, format_number(kMostSeconds)));
  }
}

}  // namespace

std::string Endpoint::text() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

void check(const LaunchOptions& options) {
  if (options.local_ranks < 1 || options.local_ranks > kMostLocalRanks) {
    throw InvalidArgument(
        "-n", fmt::format("{} is not a number from 1 to {}", options.local_ranks, kMostLocalRanks));
  }
  const auto num_devices = static_cast<int>(options.devices.size());
  if (num_devices > 0 && num_devices < options.local_ranks) {
    throw InvalidArgument(
        "--devices", fmt::format("{} devices are fewer than the {} ranks of -n; name one a rank",
                                 num_devices, options.local_ranks));
  }
  check_nodes(options);
  check_seconds(options.deadline, 0.1, "--deadline");
  check_seconds(options.grace, 0, "--grace");
  if (options.max_restarts < 0 || options.max_restarts > kMostRestarts) {
    throw InvalidArgument("--max-restarts", fmt::format("{} is not a number from 0 to {}",
                                                        options.max_restarts, kMostRestarts));
  }
  if (options.command.empty() || options.command[0].empty()) {
    throw InvalidArgument("launch",
                          "no program to start; write it at the end: pipewright launch -n 2 -- "
                          "program args");
  }
}

std::vector<int> parse_devices(std::string_view text) {
  std::vector<int> devices;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const int device =
        static_cast<int>(parse_integer(text.substr(start, end - start), "--devices", 0, 1 << 16));
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      throw InvalidArgument(
          "--devices", fmt::format("'{}' names device {} twice; name each once", text, device));
    }
    devices.push_back(device);
    start = end + 1;
  }
  return devices;
}

Endpoint parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, std::min(colon, text.size()));
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool bare_ipv6 = !bracketed && host.find(':') != std::string_view::npos;
  if (colon == std::string_view::npos || host.empty() || bare_ipv6 ||
      host.find_first_of("[] \t/") != std::string_view::npos) {
    throw InvalidArgument("--master", fmt::format("'{}' is not HOST:PORT; write it as node0:29500, "
                                                  "10.0.0.1:29500 or [fd00::1]:29500",
                                                  text));
  }
  return {std::string(host),
          static_cast<int>(parse_integer(text.substr(colon + 1), "--master", 1, 65535))};
}

}  // namespace pipewright::launch
