#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "pipewright/base/file.h"

namespace pipewright::testing_cli {

struct Result {
  int status = -1;
  std::string out;
  std::string err;
};

/// Runs the program in `folder` as a shell does. `after` follows its words: a pipe, say.
inline Result run_program(const std::string& folder, const std::string& arguments,
                          const std::string& after = "") {
  const std::string command = "cd " + folder + " && bash -c '" + PIPEWRIGHT_PROGRAM + " " +
                              arguments + " 2> stderr" + after + "'";
  Result result;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer{};
  while (const std::size_t size = fread(buffer.data(), 1, buffer.size(), pipe))
    result.out.append(buffer.data(), size);
  result.status = WEXITSTATUS(pclose(pipe));
  result.err = read_file(folder + "/stderr", "test");
  return result;
}

}  // namespace pipewright::testing_cli
