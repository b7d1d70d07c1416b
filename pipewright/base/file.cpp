#include "pipewright/base/file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "pipewright/base/error.h"

namespace pipewright {

std::string read_file(const std::string& path, std::string_view where) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw InvalidArgument(where, fmt::format("'{}' is a folder; name a file", path));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw InvalidArgument(
        where, fmt::format("cannot read '{}': {}; check the path", path, std::strerror(errno)));
  }
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) throw InvalidArgument(where, fmt::format("reading '{}' broke off", path));
  return std::move(text).str();
}

void write_file(const std::string& path, std::string_view contents, std::string_view where) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (out) out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  out.close();
  if (!out) {
    throw InvalidArgument(where,
                          fmt::format("cannot write '{}': {}; check the folder and its space", path,
                                      std::strerror(errno)));
  }
}

}  // namespace pipewright
