#pragma once

#include <string>
#include <string_view>

namespace pipewright {

/// The whole of a file. Throws InvalidArgument(`where`) saying why it cannot be read.
std::string read_file(const std::string& path, std::string_view where);

/// Writes a file, replacing what was there. Throws InvalidArgument(`where`) saying why it cannot.
void write_file(const std::string& path, std::string_view contents, std::string_view where);

}  // namespace pipewright
