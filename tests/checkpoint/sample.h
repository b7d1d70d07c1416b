#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/checkpoint/reader.h"
#include "pipewright/checkpoint/writer.h"

namespace pipewright::testing_checkpoint {

/// A folder of its own, removed with what is in it.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "pipewright-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder(TempFolder&&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  TempFolder& operator=(TempFolder&&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return in_folder(path_, name); }

 private:
  std::string path_;
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::string read_tensor(const TensorSet& tensors, const std::string& name) {
  std::string bytes(static_cast<std::size_t>(tensors.find(name).bytes()), '\0');
  tensors.read(name, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// What a small checkpoint holds: two groups of weights, two of optimizer state, all of it made
/// from one number.
class Sample {
 public:
  explicit Sample(std::int64_t number, std::size_t row_bytes = 16)
      : number_(number), row_bytes_(row_bytes) {
    const auto row = static_cast<std::int64_t>(row_bytes);
    for (const Part part : kAllParts) {
      auto& groups = part == Part::kWeights ? weights_ : optimizer_;
      for (const std::string layer : {"embed", "head"}) {
        std::vector<TensorView> tensors;
        for (const std::string kind : {".weight", ".bias"}) {
          std::string name = std::string(part_name(part)) + "." + layer + kind;
          const std::string& data = data_[name] = contents(name);
          tensors.push_back({name, DType::kU8, {2, row}, bytes_of(data)});
        }
        groups.push_back(std::move(tensors));
      }
    }
  }
  Sample(const Sample&) = delete;
  Sample(Sample&&) = delete;
  Sample& operator=(const Sample&) = delete;
  Sample& operator=(Sample&&) = delete;
  ~Sample() = default;

  void save(const std::string& dir, std::int64_t step) const {
    save_checkpoint(dir, step, weights_, optimizer_, state());
  }

  nlohmann::json state() const { return {{"seed", number_}, {"data", {{"position", 7}}}}; }
  const std::vector<std::vector<TensorView>>& weights() const { return weights_; }
  const std::vector<std::vector<TensorView>>& optimizer() const { return optimizer_; }

  /// Whether the checkpoint holds this sample, all of it and nothing else.
  bool is_in(const Checkpoint& checkpoint) const {
    std::size_t num_tensors = 0;
    for (const Part part : kAllParts) {
      for (const std::string& name : checkpoint.tensors(part).names()) {
        const auto found = data_.find(name);
        if (found == data_.end()) return false;
        if (testing_checkpoint::read_tensor(checkpoint.tensors(part), name) != found->second)
          return false;
        ++num_tensors;
      }
    }
    return num_tensors == data_.size() && checkpoint.state() == state();
  }

 private:
  std::string contents(const std::string& name) const {
    std::string data(2 * row_bytes_, '\0');
    std::uint64_t random = static_cast<std::uint64_t>(number_) * 2654435761U + name.size();
    for (char& c : data) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      c = static_cast<char>(random >> 56U);
    }
    return data;
  }

  std::int64_t number_;
  std::size_t row_bytes_;
  std::map<std::string, std::string> data_;  // by tensor; the views point into it
  std::vector<std::vector<TensorView>> weights_;
  std::vector<std::vector<TensorView>> optimizer_;
};

/// Runs the call in a process of its own and returns what it returns; 255 where it throws.
template <typename Call>
int in_child(Call call) {
  const pid_t child = fork();
  if (child == 0) {
    int result = 255;
    try {
      result = call();
    } catch (...) {
    }
    _exit(result);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace pipewright::testing_checkpoint
