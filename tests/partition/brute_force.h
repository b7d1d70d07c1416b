#pragma once

#include <functional>
#include <vector>

namespace pipewright {

/// Calls `visit` with the sizes of every split of `num_layers` layers into `num_stages` stages.
inline void for_each_split(int num_layers, int num_stages,
                           const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> sizes;
  const std::function<void(int)> choose = [&](int left) {
    const int stages_left = num_stages - static_cast<int>(sizes.size());
    if (stages_left == 1) {
      sizes.push_back(left);
      visit(sizes);
      sizes.pop_back();
      return;
    }
    for (int size = 1; size <= left - (stages_left - 1); ++size) {
      sizes.push_back(size);
      choose(left - size);
      sizes.pop_back();
    }
  };
  choose(num_layers);
}

/// The cost of each stage, added layer by layer.
template <typename T>
std::vector<T> stage_sums(const std::vector<T>& costs, const std::vector<int>& sizes) {
  std::vector<T> sums;
  std::size_t layer = 0;
  for (const int size : sizes) {
    T sum = 0;
    for (int i = 0; i < size; ++i) sum += costs[layer++];
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace pipewright
