#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// Reads the few Python values of a .npy file's header: 'text', True, (3, 4). Spaces and ends of
/// lines may stand between them. Every call throws InvalidArgument with the file's name and byte
/// where it finds something else.
class PythonReader {
 public:
  /// `text` begins at byte `start` of the file at `path`; both must outlive this.
  PythonReader(std::string_view text, std::int64_t start, const std::string& path)
      : text_(text), start_(start), path_(path) {}

  char peek();             // the next character that is no space; \0 at the end
  bool take(char wanted);  // goes past it if it is next
  void expect(char wanted);
  void expect_end();
  std::string string();                  // without escapes
  bool boolean();                        // True or False
  std::vector<std::int64_t> integers();  // a tuple of numbers that are 0 or more
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  std::int64_t integer();

  std::string_view text_;
  std::int64_t start_;
  const std::string& path_;
  std::size_t at_ = 0;
};

}  // namespace pipewright
