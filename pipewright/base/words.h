#pragma once

#include <string>

namespace pipewright {

/// Other libraries' messages go on with their call stacks.
inline std::string first_line(const std::string& words) {
  return words.substr(0, words.find('\n'));
}

}  // namespace pipewright
