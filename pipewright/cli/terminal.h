#pragma once

namespace pipewright::cli {

struct Terminal {
  int width = 100;
  bool colour = false;
};

/// What standard output is: its width and whether it takes colours (a terminal, and NO_COLOR not
/// set).
Terminal standard_output();

}  // namespace pipewright::cli
