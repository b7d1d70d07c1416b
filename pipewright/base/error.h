#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace pipewright {

/// Base of everything pipewright throws. The message reads `[where] what, with its values; what to
/// do`.
class Error : public std::runtime_error {
 public:
  Error(std::string_view where, std::string_view what);
};

/// The user's input is wrong: an option, a file, a size. The program exits with 2.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A Program cannot run. The message's first line is the reason; the grid with the wrong step
/// marked follows.
class ScheduleError : public Error {
 public:
  using Error::Error;
};

/// A layer, a loss or an optimizer threw. The message names rank, stage and instruction.
class StageError : public Error {
 public:
  using Error::Error;
};

/// A stage needed more memory than there is. The message says what it holds and what may help.
class OutOfMemory : public StageError {
 public:
  using StageError::StageError;
};

/// A peer failed, or a wait came to its deadline.
class TransportError : public Error {
 public:
  using Error::Error;
};

/// A promise of pipewright's own code does not hold: our bug, never the user's.
class InternalError : public Error {
 public:
  using Error::Error;
};

/// Throws InternalError with the place of the call unless `holds`. For our own mistakes only: what
/// a user may get wrong is answered with InvalidArgument. (The builtins stand in for
/// std::source_location, which clang 14 does not have.)
void internal_check(bool holds, const char* what, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE());

}  // namespace pipewright
