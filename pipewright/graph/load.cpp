#include <fmt/format.h>

#include <array>
#include <fstream>

#include "pipewright/base/error.h"
#include "pipewright/base/words.h"
#include "pipewright/graph/graph.h"

namespace pipewright {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw InvalidArgument("graph", fmt::format("'{}' {}", path, why));
}

constexpr auto kHowToExport =
    "save it in Python with torch.jit.script(model).save(path) or torch.jit.trace(model, "
    "inputs).save(path)";

/// TorchScript files are zip archives; says what else this one is.
void check_is_archive(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, "cannot be opened; check the path");
  std::array<char, 4> head{};
  file.read(head.data(), head.size());
  if (file.gcount() == 0) refuse(path, "is empty; export the model again");
  if (std::string_view(head.data(), 2) == "PK") return;
  refuse(path, fmt::format("is not a TorchScript file; {}", kHowToExport));
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

[[noreturn]] void explain(const std::string& path, const std::string& words) {
  if (contains(words, "constants.pkl"))
    refuse(path, fmt::format("was written by torch.save, not as TorchScript; {}", kHowToExport));
  if (contains(words, "central directory") || contains(words, "failed reading zip"))
    refuse(path, "is cut short or damaged; export or copy it again");
  refuse(path, fmt::format("cannot be read as TorchScript: {}", first_line(words)));
}

torch::jit::Module load_module(const std::string& path) {
  check_is_archive(path);
  try {
    return torch::jit::load(path, torch::kCPU);
  } catch (const c10::Error& error) {
    explain(path, error.what_without_backtrace());
  } catch (const std::exception& error) {
    explain(path, error.what());
  }
}

}  // namespace

Graph Graph::load(const std::string& path, const std::string& method) {
  return from(load_module(path), method);
}

}  // namespace pipewright
