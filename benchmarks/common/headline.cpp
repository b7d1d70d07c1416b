#include "benchmarks/common/headline.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace pipewright::bench {

void add(const Headline& line) {
  const char* path = std::getenv("PIPEWRIGHT_BENCH_TABLE");
  if (path == nullptr) return;
  std::FILE* file = std::fopen(path, "a");
  if (file == nullptr) return;
  fmt::print(file, "| {} | {} | {} | {} |\n", line.what, line.measured, line.aim,
             line.aim.empty() ? ""
             : line.met       ? "yes"
                              : "**no**");
  std::fclose(file);
}

}  // namespace pipewright::bench
