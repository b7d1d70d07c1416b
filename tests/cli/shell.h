#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
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
  const std::string command =
      "cd " + folder + " && " + PIPEWRIGHT_PROGRAM + " " + arguments + " 2> stderr" + after;
  // Not within quotes: the words have quotes of their own.
  setenv("PIPEWRIGHT_TEST_COMMAND", command.c_str(), /*overwrite=*/1);
  Result result;
  FILE* pipe = popen("exec bash -c \"$PIPEWRIGHT_TEST_COMMAND\"", "r");
  std::array<char, 4096> buffer{};
  while (const std::size_t size = fread(buffer.data(), 1, buffer.size(), pipe))
    result.out.append(buffer.data(), size);
  result.status = WEXITSTATUS(pclose(pipe));
  result.err = read_file(folder + "/stderr", "test");
  return result;
}

}  // namespace pipewright::testing_cli
