#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <map>

#include "pipewright/base/error.h"
#include "pipewright/transport/nccl.h"

namespace pipewright {

c10::intrusive_ptr<compat::ProcessGroup> make_nccl_group(const World& world,
                                                         const std::string& name, int rank,
                                                         int size) {
  return make_nccl_group(world.store(name), rank, size);
}

std::string gpu_of_machine(torch::Device device) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("{} of {}", gpu_name(device), host.data());
}

std::string shared_gpu_words(const std::vector<std::string>& gpus) {
  std::map<std::string, int> first;
  for (std::size_t process = 0; process < gpus.size(); ++process) {
    const auto [found, is_new] = first.emplace(gpus[process], static_cast<int>(process));
    if (is_new) continue;
    return fmt::format(
        "ranks {} and {} have the same GPU ({}); NCCL needs one a rank: write devices = [\"cuda\"] "
        "for the GPU of each process's LOCAL_RANK, start no more processes than there are GPUs, or "
        "use transport = \"gloo\"",
        found->second, process, gpus[process]);
  }
  return {};
}

void check_own_gpus(const World& world, const std::string& name, const std::string& gpu,
                    std::chrono::duration<double> deadline) {
  const auto key = [&](int process) { return fmt::format("gpu/{}/{}", name, process); };
  world.post(key(world.place().rank), gpu);
  std::vector<std::string> gpus;
  for (int process = 0; process < world.place().size; ++process)
    gpus.push_back(world.wait_for_text(key(process), process, deadline));
  const std::string words = shared_gpu_words(gpus);
  if (!words.empty()) throw InvalidArgument("transport", words);
}

}  // namespace pipewright
