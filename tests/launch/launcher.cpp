#include "tests/launch/launcher.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "pipewright/launch/socket.h"

namespace pipewright::launch {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::string unique_name() {
  static int count = 0;
  return std::to_string(getpid()) + "_" + std::to_string(count++);
}

}  // namespace

bool eventually(const std::function<bool()>& holds, const std::string& what) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) {
      ADD_FAILURE() << "never: " << what;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool is_alive(pid_t pid) {
  const std::string status = contents("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t end_of_name = status.rfind(')');
  return end_of_name != std::string::npos && status.substr(end_of_name + 2, 1) != "Z";
}

int some_free_port() {
  const Endpoint loopback{"127.0.0.1", 1};
  return free_port(resolve(loopback, Clock::now()), loopback);
}

Launcher::Launcher(const fs::path& folder, const std::vector<std::string>& options,
                   const std::string& shell)
    : Launcher(folder, options, shell, unique_name()) {}

Launcher::Launcher(const fs::path& folder, const std::vector<std::string>& options,
                   const std::string& shell, const std::string& name)
    : out_(folder / ("out_" + name)),
      err_(folder / ("err_" + name)),
      pid_(start(folder, options, shell)) {}

pid_t Launcher::start(const fs::path& folder, const std::vector<std::string>& options,
                      const std::string& shell) const {
  std::vector<std::string> command = {PIPEWRIGHT_PROGRAM, "launch"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--", "/bin/sh", "-c", shell});
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  dup2(open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), STDOUT_FILENO);
  dup2(open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), STDERR_FILENO);
  if (chdir(folder.c_str()) == 0) execv(argv[0], argv.data());
  _exit(99);
}

Launcher::~Launcher() {
  if (waited_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Launcher::signal(int number) const { kill(pid_, number); }
std::string Launcher::out() const { return contents(out_); }
std::string Launcher::err() const { return contents(err_); }

Launcher::Result Launcher::wait() {
  int status = 0;
  const bool ended = eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; },
                                "the launcher ends; it said:\n" + err());
  if (!ended) return {-1, out(), err()};
  waited_ = true;
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), out(), err()};
}

LaunchTest::LaunchTest()
    : folder_(fs::path(testing::TempDir()) / ("pipewright_launch_" + unique_name())) {
  fs::create_directories(folder_);
  unsetenv("OMP_NUM_THREADS");
}

void LaunchTest::TearDown() {
  std::error_code ignored;
  if (!HasFailure()) fs::remove_all(folder_, ignored);
}

std::string LaunchTest::text(const std::string& file) const { return contents(folder_ / file); }

bool LaunchTest::eventually_there(const std::string& file) const {
  return eventually([&] { return text(file).find('\n') != std::string::npos; },
                    file + " is written");
}

pid_t LaunchTest::pid_in(const std::string& file) const {
  return eventually_there(file) ? std::stoi(text(file)) : -1;
}

Launcher::Result LaunchTest::run(const std::vector<std::string>& options,
                                 const std::string& shell) const {
  return Launcher(folder_, options, shell).wait();
}

}  // namespace pipewright::launch
