#pragma once

#include <stdexcept>

#include "pipewright/ir/program.h"

namespace pipewright::fuzz {

/// A promise that does not hold for the input at hand. Nothing catches it but the replay driver:
/// libFuzzer takes it for the crash it is.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws Broken unless `holds`.
void require(bool holds, const char* what);

/// True where validate() accepts the Program. Anything but a ScheduleError escapes.
bool is_valid(const Program& program);

/// What must hold of every Program that a reader made, however nonsensical:
/// validate() accepts it or throws ScheduleError; one it accepts lowers and simulates.
void check_program(const Program& program);

}  // namespace pipewright::fuzz
