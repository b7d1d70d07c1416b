#include "benchmarks/common/stolen.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace pipewright::bench {

double stolen_seconds() {
  constexpr int kBefore = 7;  // user, nice, system, idle, iowait, irq, softirq
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  double ticks = 0;
  for (int i = 0; i <= kBefore; ++i) file >> ticks;
  return file ? ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)) : 0;
}

}  // namespace pipewright::bench
