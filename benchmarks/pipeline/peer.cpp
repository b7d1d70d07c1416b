#include "benchmarks/pipeline/peer.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"

namespace pipewright::bench {
namespace {

/// All that a command prints.
std::string output_of(const std::string& command) {
  const auto close = [](std::FILE* pipe) { ::pclose(pipe); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe(::popen(command.c_str(), "r"), close);
  if (pipe == nullptr) throw Error("--peer", fmt::format("cannot run '{}'", command));
  std::string text;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
    text.append(buffer.data(), count);
  return text;
}

}  // namespace

std::optional<double> measure_peer(const Peer& peer, const Sizes& s, int ranks, int micro_batches,
                                   const std::string& schedule, int steps) {
  const std::string command = fmt::format(
      "OMP_NUM_THREADS=1 timeout --foreground 200 {} -m torch.distributed.run --standalone "
      "--nproc-per-node {} "
      "{} --schedule {} --layers {} --dim {} --heads {} --seq {} --vocab {} --batch {} "
      "--micro-batches {} --steps {} 2>&1",
      peer.python, ranks, peer.script, schedule, s.layers, s.dim, s.heads, s.seq, s.vocab, s.batch,
      micro_batches, steps);
  const std::string text = output_of(command);
  const auto found = text.find("{\"schedule\"");
  if (found == std::string::npos) {
    fmt::print(stderr, "the peer failed: {}\n{}\n", command,
               text.substr(text.size() < 600 ? 0 : text.size() - 600));
    return std::nullopt;
  }
  const std::string line = text.substr(found, text.find('\n', found) - found);
  return nlohmann::json::parse(line).at("seconds_per_step").get<double>();
}

}  // namespace pipewright::bench
