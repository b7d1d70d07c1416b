#include "pipewright/launch/launch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>

#include "pipewright/launch/hello.h"
#include "pipewright/launch/roles.h"

namespace pipewright::launch {
namespace {

/// What a rank leaves behind when it ends becomes this process's child, so that its end is seen.
class Subreaper {
 public:
  Subreaper() {
    prctl(PR_GET_CHILD_SUBREAPER, &before_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, before_); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
  Subreaper(Subreaper&&) = delete;
  Subreaper& operator=(Subreaper&&) = delete;

 private:
  int before_ = 0;
};

/// Were one of these closed, the next file opened would take its place and be written to.
void open_standard_streams() {
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
    if (fd <= STDERR_FILENO) continue;
    close(fd);
    return;
  }
}

}  // namespace

Hello hello_of(const LaunchOptions& options) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return {.nnodes = options.nnodes,
          .node_rank = options.node_rank,
          .local_ranks = options.local_ranks,
          .max_restarts = options.max_restarts,
          .deadline_seconds = options.deadline.count(),
          .host = host.data()};
}

int launch(const LaunchOptions& options, Sink& sink) {
  check(options);
  open_standard_streams();
  const Subreaper subreaper;
  return options.node_rank == 0 ? run_first_node(options, sink) : run_other_node(options, sink);
}

}  // namespace pipewright::launch
