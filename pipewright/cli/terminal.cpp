#include "pipewright/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace pipewright::cli {

Terminal standard_output() {
  Terminal terminal;
  if (isatty(STDOUT_FILENO) == 0) return terminal;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = size.ws_col;
  const char* no_colour = std::getenv("NO_COLOR");
  terminal.colour = no_colour == nullptr || *no_colour == '\0';
  return terminal;
}

}  // namespace pipewright::cli
