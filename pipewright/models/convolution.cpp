#include "pipewright/models/convolution.h"

namespace pipewright {

double convolution_cost(std::int64_t from, std::int64_t to, std::int64_t kernel,
                        std::int64_t size) {
  return static_cast<double>(from) * static_cast<double>(to) *
         static_cast<double>(kernel * kernel) * static_cast<double>(size * size);
}

torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, torch::IntArrayRef kernel,
                              torch::IntArrayRef stride) {
  torch::nn::Conv2d made(torch::nn::Conv2dOptions(from, to, kernel)
                             .stride(stride)
                             .padding(torch::ExpandingArray<2>({kernel[0] / 2, kernel[1] / 2}))
                             .bias(false));
  torch::nn::init::kaiming_normal_(made->weight, 0, torch::kFanOut, torch::kReLU);
  return made;
}

torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t kernel,
                              std::int64_t stride) {
  return convolution(from, to, torch::IntArrayRef({kernel, kernel}),
                     torch::IntArrayRef({stride, stride}));
}

}  // namespace pipewright
