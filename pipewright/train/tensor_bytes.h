#pragma once

#include <torch/torch.h>

#include <string>

#include "pipewright/checkpoint/safetensors.h"
#include "pipewright/checkpoint/tensor_set.h"

namespace pipewright {

/// The files' word for an element type. Throws InvalidArgument naming the tensor where files have
/// none.
DType file_dtype(const std::string& name, const torch::Tensor& tensor);
std::string dtype_word(torch::ScalarType type);  // as files say it

/// What LibTorch calls an element type, if this version has it.
std::optional<torch::ScalarType> torch_dtype(DType dtype);

/// The same tensor in the host's memory, row by row, sharing nothing. Throws InvalidArgument for
/// tensors that files cannot hold (sparse, complex, quantized).
torch::Tensor host_copy(const std::string& name, const torch::Tensor& tensor);

/// The bytes of what host_copy() returned, which must outlive the view.
TensorView view_of(std::string name, const torch::Tensor& host);

/// Reads a tensor into the host's memory. Throws InvalidArgument.
torch::Tensor read_tensor(const TensorSet& set, const std::string& name);

}  // namespace pipewright
