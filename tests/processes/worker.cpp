#include "tests/processes/worker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>

#include "pipewright/base/file.h"

namespace pipewright {
namespace {

constexpr const char* kWorker = "PIPEWRIGHT_TEST_WORKER";
constexpr const char* kFolder = "PIPEWRIGHT_TEST_FOLDER";
constexpr const char* kArgument = "PIPEWRIGHT_TEST_ARG_";

std::map<std::string, std::function<void(const Arguments&)>>& workers() {
  static std::map<std::string, std::function<void(const Arguments&)>> all;
  return all;
}

Arguments arguments_given() {
  Arguments arguments;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string prefix = kArgument;
    const auto equals = text.find('=');
    if (text.starts_with(prefix))
      arguments[text.substr(prefix.size(), equals - prefix.size())] = text.substr(equals + 1);
  }
  return arguments;
}

int run_worker(const std::string& name) {
  try {
    workers().at(name)(arguments_given());
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

/// In the child: no return.
[[noreturn]] void become_worker(const std::string& log, const Arguments& environment,
                                const std::vector<std::string>& command) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nobody behind
  ::signal(SIGPIPE, SIG_DFL);          // as from a shell, whatever started the test
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(file, STDERR_FILENO);
  ::dup2(file, STDOUT_FILENO);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(const_cast<char*>(program.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  ::_exit(127);
}

std::string log_of(const std::string& folder, std::size_t rank) {
  return folder + "/words." + std::to_string(rank);
}

}  // namespace

Worker::Worker(std::string name, std::function<void(const Arguments&)> work) {
  workers()[std::move(name)] = std::move(work);
}

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), length);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(socket);
  return ntohs(address.sin_port);
}

bool eventually(const std::function<bool()>& holds, const std::string& what) {
  const auto start = std::chrono::steady_clock::now();
  while (!holds()) {
    if (std::chrono::steady_clock::now() - start > std::chrono::minutes(1)) {
      ADD_FAILURE() << "never: " << what;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string result_folder() { return std::getenv(kFolder); }

Processes::Processes(const std::string& worker, int count, const Arguments& arguments,
                     const Arguments& environment, const std::map<int, Arguments>& by_rank,
                     const std::map<int, std::vector<std::string>>& command_by_rank)
    : ranks_(static_cast<std::size_t>(count)) {
  std::string made = (std::filesystem::temp_directory_path() / "pipewright-XXXXXX").string();
  folder_ = ::mkdtemp(made.data());
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    Arguments all = {{"RANK", std::to_string(rank)},
                     {"LOCAL_RANK", std::to_string(rank)},
                     {"WORLD_SIZE", std::to_string(count)},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", port_},
                     {"OMP_NUM_THREADS", "1"},
                     {kWorker, worker},
                     {kFolder, folder_}};
    for (const auto& [name, value] : arguments) all[kArgument + name] = value;
    for (const auto& [name, value] : environment) all[name] = value;
    const int number = static_cast<int>(rank);
    if (by_rank.contains(number)) {
      for (const auto& [name, value] : by_rank.at(number)) all[name] = value;
    }
    const auto command =
        command_by_rank.contains(number) ? command_by_rank.at(number) : std::vector<std::string>();
    const std::string log = log_of(folder_, rank);
    ranks_[rank].pid = ::fork();
    if (ranks_[rank].pid == 0) become_worker(log, all, command);
  }
}

Processes::~Processes() {
  for (const Rank& rank : ranks_) {
    if (rank.status != -1) continue;
    ::kill(rank.pid, SIGKILL);
    ::waitpid(rank.pid, nullptr, 0);
  }
  std::filesystem::remove_all(folder_);
}

void Processes::signal(int rank, int number) const { ::kill(pid(rank), number); }

int Processes::wait(int rank) {
  Rank& one = ranks_[static_cast<std::size_t>(rank)];
  const auto start = std::chrono::steady_clock::now();
  while (runs(rank)) {
    if (std::chrono::steady_clock::now() - start > std::chrono::minutes(1)) {
      ADD_FAILURE() << "rank " << rank << " does not end";
      ::kill(one.pid, SIGKILL);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return one.status;
}

bool Processes::runs(int rank) {
  Rank& one = ranks_[static_cast<std::size_t>(rank)];
  int status = 0;
  if (one.status == -1 && ::waitpid(one.pid, &status, WNOHANG) == one.pid)
    one.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return one.status == -1;
}

std::string Processes::words(int rank) const {
  const std::string log = log_of(folder_, static_cast<std::size_t>(rank));
  return std::filesystem::exists(log) ? read_file(log, "words") : "";
}

void Processes::expect_success() {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    EXPECT_EQ(wait(rank), 0) << "rank " << rank << ": " << words(rank);
}

}  // namespace pipewright

int main(int argc, char** argv) {
  if (const char* worker = std::getenv(pipewright::kWorker)) return pipewright::run_worker(worker);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
