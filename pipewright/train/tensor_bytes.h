#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipewright/checkpoint/name_in_file.h"
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

/// The same for one that the set holds under another name, in parts or transposed; and its shape in
/// the model, if the parts fit each other.
torch::Tensor read_held(const TensorSet& set, const NameInFile& name);
std::optional<std::vector<std::int64_t>> shape_of(const TensorSet& set, const NameInFile& name);

/// The other way round: the parts of a tensor, as a file is to hold them.
std::vector<std::pair<std::string, torch::Tensor>> parts_of(const NameInFile& name,
                                                            const torch::Tensor& tensor);

}  // namespace pipewright
