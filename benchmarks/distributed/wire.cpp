#include "benchmarks/distributed/wire.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "pipewright/base/error.h"

namespace pipewright::bench {
namespace {

constexpr const char* kOwnNetwork = "/proc/self/ns/net";
constexpr const char* kOwn = "10.213.78.1";
constexpr const char* kOther = "10.213.78.2";

[[noreturn]] void refuse(const std::string& why) {
  throw Error("bench", fmt::format("{}; run it in a network namespace of its own: unshare -rn "
                                   "bench_distributed --link 400",
                                   why));
}

void run(const std::string& command) {
  // NOLINTNEXTLINE(cert-env33-c): the words are our own
  if (std::system(command.c_str()) != 0) refuse(fmt::format("'{}' fails", command));
}

/// The lines after the two of titles, one an interface: its name, a colon, eight columns of what
/// was received, eight of what was sent.
std::string interface_line(const std::function<bool(const std::string&)>& wanted) {
  std::ifstream file("/proc/self/net/dev");
  file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  for (std::string line; std::getline(file, line);) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (wanted(line.substr(begin, line.find(':') - begin))) return line.substr(begin);
  }
  return "";
}

}  // namespace

Wire::Wire() {
  const std::string more = interface_line([](const auto& name) { return name != "lo"; });
  if (!more.empty()) refuse(fmt::format("this network has '{}'", more.substr(0, more.find(':'))));
  own_ = ::open(kOwnNetwork, O_RDONLY | O_CLOEXEC);
  if (::unshare(CLONE_NEWNET) != 0) refuse("no second network can be made");
  other_ = ::open(kOwnNetwork, O_RDONLY | O_CLOEXEC);
  if (::setns(own_, CLONE_NEWNET) != 0) refuse("the first network cannot be gone back to");
  run(fmt::format("ip link add wire type veth peer name wire netns {}", other_network()));
  in_both("ip link set lo up");
  run(fmt::format("ip addr add {}/24 dev wire", kOwn));
  run(fmt::format("nsenter --net={} ip addr add {}/24 dev wire", other_network(), kOther));
  // Packets that a slow wire sends one by one.
  in_both("ip link set wire up mtu 16000");
}

Wire::~Wire() {
  ::close(other_);
  ::close(own_);
}

void Wire::in_both(const std::string& command) const {
  run(command);
  run(fmt::format("nsenter --net={} {}", other_network(), command));
}

/// No packet is dropped: it waits for as long as the queue is. Little may go at once, else what a
/// wire did not send while it was idle would cost nothing later.
void Wire::limit(double megabits) const {
  if (megabits == 0) return in_both("tc qdisc del dev wire root");
  in_both(fmt::format("tc qdisc replace dev wire root tbf rate {:.3f}mbit burst 20kb latency 60s",
                      megabits));
}

std::string Wire::address() const { return kOwn; }

std::string Wire::other_network() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), other_);
}

std::int64_t Wire::bytes() const {
  const std::string line = interface_line([](const auto& name) { return name == "wire"; });
  std::istringstream columns(line.substr(line.find(':') + 1));
  std::int64_t sum = 0;
  for (int column = 0; column < 9; ++column) {
    std::int64_t number = 0;
    columns >> number;
    if (column == 0 || column == 8) sum += number;
  }
  return sum;
}

}  // namespace pipewright::bench
