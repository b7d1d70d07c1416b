#pragma once

#include <string>

namespace pipewright::bench {

/// One line of the table that `make bench` prints at its end: what was measured, and what it should
/// be. Goes to the file that PIPEWRIGHT_BENCH_TABLE names; without it nowhere, the program's own
/// output has it anyway.
struct Headline {
  std::string what;
  std::string measured;
  std::string aim = "";  // empty: there is none
  bool met = true;
};
void add(const Headline& line);

}  // namespace pipewright::bench
