#include "benchmarks/common/processes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "pipewright/base/error.h"
#include "pipewright/launch/launch.h"
#include "pipewright/transport/environment.h"

namespace pipewright::bench {
namespace {

constexpr int kPort = 29617;  // of a network that has nothing else

/// Says nothing: the figures come in files.
class Quiet : public launch::Sink {
 public:
  void message(std::string_view text) override { words += fmt::format("{}\n", text); }
  void output(launch::Stream, std::string_view bytes) override { words += bytes; }
  std::string words;
};

}  // namespace

std::vector<nlohmann::json> run_ranks(int ranks, const std::vector<std::string>& arguments,
                                      const RankPlace& where) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("pipewright-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string out = (folder / "rank").string();
  launch::LaunchOptions options;
  options.local_ranks = ranks;
  options.log_dir = (folder / "logs").string();
  if (!where.address.empty()) options.master = launch::Endpoint{where.address, kPort};
  if (!where.odd_ranks.empty()) {
    const std::string odd = fmt::format("{}", fmt::join(where.odd_ranks, " "));
    options.command = {"sh", "-c",
                       fmt::format("test $((RANK % 2)) = 0 && exec \"$@\"; exec {} \"$@\"", odd),
                       "sh"};
  }
  options.command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  options.command.insert(options.command.end(), {"--out", out});
  Quiet quiet;
  const int status = launch::launch(options, quiet);
  std::vector<nlohmann::json> all;
  for (int rank = 0; status == 0 && rank < ranks; ++rank) {
    std::ifstream file(fmt::format("{}{}.json", out, rank));
    all.push_back(nlohmann::json::parse(file));
  }
  std::filesystem::remove_all(folder);
  if (status != 0) throw Error("benchmark", fmt::format("a rank failed:\n{}", quiet.words));
  return all;
}

void leave_result(const std::string& out, const nlohmann::json& result) {
  std::ofstream(fmt::format("{}{}.json", out, read_environment().rank)) << result;
}

}  // namespace pipewright::bench
