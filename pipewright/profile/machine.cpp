#include "pipewright/profile/machine.h"

#include <fmt/format.h>

#include <fstream>
#include <thread>

#include "pipewright/profile/moment.h"

namespace pipewright {

std::string machine_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string name = "unknown processor";
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) {
      name = line.substr(colon + 2);
      break;
    }
  }
  return fmt::format("{}, {} cores, {} threads, LibTorch {}", name,
                     std::thread::hardware_concurrency(), torch::get_num_threads(), TORCH_VERSION);
}

double host_bandwidth(const DeviceStream& stream) {
  if (!stream.on_gpu()) return 0;
  const torch::Device device = stream.device();
  constexpr std::int64_t kBytes = std::int64_t{1} << 26;
  const UseStream use(stream);
  auto there = torch::zeros({kBytes}, torch::dtype(torch::kByte).device(device));
  auto here = torch::empty({kBytes}, torch::dtype(torch::kByte).pinned_memory(true));
  std::vector<double> seconds;
  for (int i = 0; i < 4; ++i) {
    for (const bool out : {true, false}) {
      stream.synchronize(kGpuDeadline);
      const auto start = std::chrono::steady_clock::now();
      out ? here.copy_(there, true) : there.copy_(here, true);
      stream.synchronize(kGpuDeadline);
      if (i > 0)
        seconds.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  return static_cast<double>(kBytes) / median(seconds);
}

}  // namespace pipewright
