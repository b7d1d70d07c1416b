#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <string_view>

#include "pipewright/base/file.h"

namespace pipewright::testing_input {

/// A folder of its own for a test, removed with all that is in it.
class Folder {
 public:
  Folder() {
    static std::atomic<int> count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("pipewright_input_" + std::to_string(::getpid()) + "_" + std::to_string(++count));
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder(Folder&&) = delete;
  Folder& operator=(const Folder&) = delete;
  Folder& operator=(Folder&&) = delete;

  std::string path(const std::string& name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }

  /// Writes a file (and the folders it is in) and returns its path.
  std::string file(const std::string& name, std::string_view contents) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    write_file(path(name), contents, "test");
    return path(name);
  }

  /// The text without this folder's name, which differs from run to run.
  std::string without(std::string text) const {
    const std::string name = path_.string() + "/";
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name)) {
      text.erase(at, name.size());
    }
    return text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace pipewright::testing_input
