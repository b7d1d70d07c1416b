#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "pipewright/base/units.h"

namespace pipewright::bench {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

inline double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Time of all threads of this process, so far.
inline double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// How quiet the machine was: of the same work, the time that one in ten was longer than, over the
/// time that one in ten was shorter than. Above 1.1 or so, do not believe the rest.
inline double spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() * 9 / 10] / values[values.size() / 10];
}

inline std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

/// Whole numbers from 1 up, with commas between them; throws InvalidArgument naming `what`
/// otherwise.
inline std::vector<int> numbers_of(const std::string& text, const char* what) {
  constexpr std::int64_t kMost = 1 << 20;
  std::vector<int> numbers;
  for (const std::string& part : parts_of(text))
    numbers.push_back(static_cast<int>(parse_integer(part, what, 1, kMost)));
  return numbers;
}

}  // namespace pipewright::bench
