#pragma once

#include <cstdint>
#include <string>

namespace pipewright::bench {

/// A second network and a wire to it, of a set speed in each direction, gone at the end. This one
/// must be a network namespace that has nothing else: the machine's own network is not ours.
/// Throws Error where it is not, or where ip or tc refuse.
class Wire {
 public:
  Wire();
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  Wire(Wire&&) = delete;
  Wire& operator=(Wire&&) = delete;

  /// Holds it to so many megabits a second each way; 0: as fast as it is.
  void limit(double megabits) const;

  /// This end's address.
  std::string address() const;
  /// The other network, as nsenter --net takes it.
  std::string other_network() const;
  /// That went over it so far, both ways, headers included.
  std::int64_t bytes() const;

 private:
  void in_both(const std::string& command) const;

  int own_ = -1;  // descriptors of the two networks
  int other_ = -1;
};

}  // namespace pipewright::bench
