#pragma once

#include <string>

#include "pipewright/checkpoint/name_in_file.h"
#include "pipewright/train/exchange.h"
#include "pipewright/train/snapshot.h"

namespace pipewright {

/// Throws InvalidArgument where so many processes cannot write to `path`.
void check_weights_path(const std::string& path, int num_processes);

/// Writes the weights of a model, from all processes together, as Hugging Face's tools read them:
/// one file where `path` ends with .safetensors (of one process), else a new folder. It is written
/// beside and renamed when all of it is on the disk; a file that is there is then replaced, a
/// folder refused. `names`: what the file is to call them. Throws InvalidArgument, StorageError.
void write_weights(const std::string& path, const Snapshot& snapshot, Exchange* exchange,
                   const NamesInFile& names = {});

}  // namespace pipewright
