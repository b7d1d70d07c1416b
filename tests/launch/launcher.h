#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace pipewright::launch {

/// Far longer than anything here takes; no test waits for it to pass.
inline constexpr int kPatienceSeconds = 60;

/// Waits until `holds`; a failure of the test where it does not come true.
bool eventually(const std::function<bool()>& holds, const std::string& what);

/// True while a process of that id is there and no zombie.
bool is_alive(pid_t pid);

/// A port of 127.0.0.1 that was free a moment ago.
int some_free_port();

/// `pipewright launch` as a process of its own, its output in files.
class Launcher {
 public:
  struct Result {
    int status = -1;  // as a shell says it
    std::string out;
    std::string err;
  };

  /// Runs in `folder`, where the logs go too. `shell` is what each rank gives to /bin/sh.
  Launcher(const std::filesystem::path& folder, const std::vector<std::string>& options,
           const std::string& shell);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  Launcher(Launcher&&) = delete;
  Launcher& operator=(Launcher&&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  Result wait();
  std::string out() const;
  std::string err() const;

 private:
  Launcher(const std::filesystem::path& folder, const std::vector<std::string>& options,
           const std::string& shell, const std::string& name);
  pid_t start(const std::filesystem::path& folder, const std::vector<std::string>& options,
              const std::string& shell) const;

  std::filesystem::path out_;
  std::filesystem::path err_;
  pid_t pid_;
  bool waited_ = false;
};

/// A folder a test, gone when it passed.
class LaunchTest : public testing::Test {
 protected:
  LaunchTest();
  void TearDown() override;

  const std::filesystem::path& folder() const { return folder_; }
  std::string text(const std::string& file) const;  // empty where it is not there
  bool eventually_there(const std::string& file) const;
  /// The number that a rank wrote to a file, e.g. its process id.
  pid_t pid_in(const std::string& file) const;
  Launcher::Result run(const std::vector<std::string>& options, const std::string& shell) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace pipewright::launch
