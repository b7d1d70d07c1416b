#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "pipewright/launch/exit_status.h"

namespace pipewright::launch {

// What the launchers of a run say to each other. Node 0 decides; every node, node 0's own among
// them, tells it what happens to its ranks and does what it says:
//
//     node            node 0
//     Hello      ->
//                <-   Start         attempt 0
//     Failed     ->                 a rank ended with an error: more of them may follow
//                <-   Stop
//     Stopped    ->                 no process of the attempt is left
//                <-   Start         attempt 1, where restarts are left
//     Done       ->                 all of the node's ranks ended with 0
//                <-   End
//
// CannotStart and Interrupted end the run. Ping says that a launcher is there, both ways.
// On the wire each is one line with one JSON object. The other side is not trusted: lines have a
// greatest length, numbers ranges, and members that are not known are refused.

inline constexpr int kProtocolVersion = 1;
inline constexpr std::size_t kMostLineBytes = 16384;

struct Hello {
  int version = kProtocolVersion;
  int nnodes = 1;
  int node_rank = 0;
  int local_ranks = 1;
  int max_restarts = 0;
  double deadline_seconds = 0;
  std::string host;
};

struct Start {
  int attempt = 0;
  int first_rank = 0;  // of this node's ranks
  int world_size = 1;
  std::string master_addr;
  int master_port = 0;
  std::string run_id;
};

struct Failed {
  int attempt = 0;
  int local_rank = 0;
  ExitStatus status;
};

struct Done {
  int attempt = 0;
};

struct Stop {
  int attempt = 0;
  int signal = 0;  // what to ask the ranks with
  int rank = -1;   // whose failure it is, or -1
  std::string reason;
};

struct Stopped {
  int attempt = 0;
};

struct CannotStart {
  int status = 1;
  std::string reason;
};

struct Interrupted {
  int signal = 0;
};

struct End {
  int status = 0;
  std::string reason;
};

struct Ping {};

using Message =
    std::variant<Hello, Start, Failed, Done, Stop, Stopped, CannotStart, Interrupted, End, Ping>;

/// One line, with its newline. Reasons that are too long for a line are cut.
std::string encode(const Message& message);

/// Of one line without its newline. Throws InvalidArgument saying what is wrong with it. Of a Hello
/// of another protocol version only the version is read. Control characters in texts, which might
/// do things to a terminal, become '?'.
Message decode(std::string_view line);

}  // namespace pipewright::launch
