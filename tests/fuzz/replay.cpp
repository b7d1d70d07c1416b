// Runs a fuzz target over the files of some folders, and over some thousand mutations of each: the
// same ones every time. A test for compilers without libFuzzer.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "pipewright/base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr int kMutationsPerSeed = 2000;

struct Seed {
  std::string path;
  std::string bytes;
};

std::vector<Seed> read_seeds(const std::vector<std::string>& folders) {
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Seed> seeds;
  for (const std::string& path : paths) seeds.push_back({path, pipewright::read_file(path, path)});
  return seeds;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<Seed>& seeds) : seeds_(seeds) {}

  /// The text with one to four changes.
  std::string mutate(std::string text) {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(&text);
    return text;
  }

 private:
  // Not std::uniform_int_distribution, whose numbers differ between standard libraries.
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void change(std::string* text) {
    static constexpr std::string_view kCharacters = "0123456789FBIWR_:,;()\"{}[]-.#e \n";
    const std::size_t at = below(text->size() + 1);
    const std::size_t length = below(std::min<std::size_t>(text->size() - at, 16) + 1);
    switch (below(6)) {
      case 0: text->insert(at, 1, kCharacters[below(kCharacters.size())]); break;
      case 1: text->erase(at, length); break;
      case 2: text->insert(at, text->substr(at, length)); break;
      case 3: text->insert(at, 1, static_cast<char>(below(256))); break;
      case 4: replace_one(text, at, kCharacters[below(kCharacters.size())]); break;
      default: splice(text, at); break;
    }
  }

  static void replace_one(std::string* text, std::size_t at, char with) {
    if (at < text->size()) (*text)[at] = with;
  }

  void splice(std::string* text, std::size_t at) {
    const std::string& other = seeds_[below(seeds_.size())].bytes;
    const std::size_t from = below(other.size() + 1);
    text->insert(at, other, from, below(64));
  }

  const std::vector<Seed>& seeds_;
  std::mt19937 random_;  // as it is seeded by default: the same run every time
};

/// False, with words and the input, where the target throws.
bool run_one(const std::string& input, const std::string& path) {
  try {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
    return true;
  } catch (const std::exception& error) {
    fmt::print("{}: {}\nthe input, {} bytes:\n{}\n", path, error.what(), input.size(), input);
    return false;
  }
}

bool replay(const std::vector<Seed>& seeds) {
  Mutator mutator(seeds);
  for (const Seed& seed : seeds) {
    if (!run_one(seed.bytes, seed.path)) return false;
    for (int i = 0; i < kMutationsPerSeed; ++i) {
      if (!run_one(mutator.mutate(seed.bytes), "a mutation of " + seed.path)) return false;
    }
  }
  fmt::print("{} files and {} mutations of each\n", seeds.size(), kMutationsPerSeed);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto seeds = read_seeds({argv + 1, argv + argc});
    if (seeds.empty()) fmt::print("no file to replay; usage: {} FOLDER...\n", argv[0]);
    return !seeds.empty() && replay(seeds) ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}
