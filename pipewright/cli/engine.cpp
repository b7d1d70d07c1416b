#include "pipewright/cli/engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "pipewright/base/error.h"

namespace pipewright::cli {

std::optional<std::string> find_engine() {
  const auto path =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "pipewright-engine";
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path.string();
}

void become_engine(const std::vector<std::string>& arguments) {
  const std::optional<std::string> engine = find_engine();
  if (!engine) {
    throw InvalidArgument("engine",
                          "this pipewright was built without LibTorch and trains nothing; build it "
                          "with PIPEWRIGHT_TORCH=ON");
  }
  std::vector<char*> words = {const_cast<char*>(engine->c_str())};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::fflush(stdout);
  ::execv(words[0], words.data());
  throw Error("engine",
              fmt::format("cannot start {}: {}", *engine, std::system_category().message(errno)));
}

}  // namespace pipewright::cli
