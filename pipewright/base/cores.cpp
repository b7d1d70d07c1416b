#include "pipewright/base/cores.h"

#include <pthread.h>
#include <sched.h>

#include <cstdlib>
#include <sstream>

#include "pipewright/base/units.h"

namespace pipewright {

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::vector<int> share_of_cores(const std::vector<int>& cores, int part, int parts) {
  const auto each = static_cast<std::ptrdiff_t>(cores.size()) / parts;
  const auto first = cores.begin() + part * each;
  return {first, first + each};
}

std::vector<int> launched_cores() {
  const char* value = std::getenv(kCoresVariable);
  std::vector<int> cores;
  std::stringstream text(value == nullptr ? "" : value);
  for (std::string core; std::getline(text, core, ',');)
    cores.push_back(static_cast<int>(parse_integer(core, kCoresVariable, 0, CPU_SETSIZE - 1)));
  return cores;
}

void pin_thread(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<std::size_t>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace pipewright
