#include "pipewright/launch/launch.h"

#include <memory>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
#include "pipewright/cli/commands.h"
#include "pipewright/cli/launch_output.h"

namespace pipewright::cli {
namespace {

struct Options {
  std::string local_ranks;
  std::string devices;
  std::string nnodes;
  std::string node_rank;
  std::string master;
  std::string log_dir;
  std::string max_restarts;
  std::string deadline;
  std::string grace;
  std::vector<std::string> command;
};

int number(const std::string& text, const char* option, int least, int most) {
  return static_cast<int>(parse_integer(text, option, least, most));
}

launch::LaunchOptions parse(const CLI::App& command, const Options& options) {
  using namespace launch;
  LaunchOptions result;
  const auto given = [&](const char* name) { return command.count(name) > 0; };
  result.local_ranks = number(options.local_ranks, "-n", 1, kMostLocalRanks);
  if (given("--devices")) result.devices = parse_devices(options.devices);
  if (given("--nnodes")) result.nnodes = number(options.nnodes, "--nnodes", 1, kMostNodes);
  if (given("--node-rank"))
    result.node_rank = number(options.node_rank, "--node-rank", 0, kMostNodes - 1);
  if (given("--master")) result.master = parse_endpoint(options.master);
  if (result.nnodes > 1 && !given("--node-rank")) {
    throw InvalidArgument("--nnodes",
                          "several nodes need --node-rank: 0 for the one that --master "
                          "names, and another number for every other one");
  }
  if (given("--log-dir") && options.log_dir.empty())
    throw InvalidArgument("--log-dir", "'' is no folder; name one");
  result.log_dir = options.log_dir;
  if (given("--max-restarts"))
    result.max_restarts = number(options.max_restarts, "--max-restarts", 0, kMostRestarts);
  if (given("--deadline"))
    result.deadline = Seconds(parse_non_negative(options.deadline, "--deadline"));
  if (given("--grace")) result.grace = Seconds(parse_non_negative(options.grace, "--grace"));
  result.command = options.command;
  check(result);
  return result;
}

void run(const CLI::App& command, const Options& options) {
  const launch::LaunchOptions parsed = parse(command, options);
  LaunchOutput output;
  int status = 1;
  try {
    status = launch::launch(parsed, output);
  } catch (const InvalidArgument& error) {
    output.message(error.what());
    status = 2;
  } catch (const Error& error) {
    output.message(error.what());
  }
  if (status != 0) throw Exit{status};
}

}  // namespace

void add_launch(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "launch", "Start a program as several ranks, as torchrun does, on one or more machines");
  command->add_option("-n", options->local_ranks, "Ranks on this machine")->required();
  command->add_option("--devices", options->devices,
                      "CUDA devices for the ranks, e.g. 0,1,2,3: CUDA_VISIBLE_DEVICES of all of "
                      "them; LOCAL_RANK picks (default: as it is)");
  command->add_option("--nnodes", options->nnodes,
                      "Machines that take part, each with a launcher (default 1)");
  command->add_option("--node-rank", options->node_rank, "Which of them this is, from 0");
  command->add_option("--master", options->master,
                      "HOST:PORT of node 0, the same on every node: where its launcher listens");
  command->add_option("--log-dir", options->log_dir,
                      "Folder for rank-0.log, rank-1.log ... (default: a new one in "
                      "pipewright-logs/)");
  command->add_option("--max-restarts", options->max_restarts,
                      "How often all ranks are started again after one failed (default 0)");
  command->add_option("--deadline", options->deadline,
                      "Seconds to meet the other nodes, and to hear of them (default 30)");
  command->add_option("--grace", options->grace,
                      "Seconds from asking ranks to end to killing them (default 10)");
  command->add_option("program", options->command, "After --: the program and its arguments");
  command->callback([command, options] { run(*command, *options); });
}

}  // namespace pipewright::cli
