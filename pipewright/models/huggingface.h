#pragma once

#include <string>
#include <vector>

#include "pipewright/checkpoint/name_in_file.h"

namespace pipewright {

// The weights of make_gpt() and make_bert() as Hugging Face's GPT2LMHeadModel and BertForMaskedLM
// hold them. `in_file`: the names of the file to be read, whose variants differ; without them, the
// names that those classes write.

/// With "transformer." before them or without. Matrices lie transposed there (Conv1D).
NamesInFile gpt2_names(const std::vector<std::string>& in_file = {});

/// With "bert." before them or without; norms as weight and bias or as gamma and beta. Query, key
/// and value are three tensors there.
NamesInFile bert_names(const std::vector<std::string>& in_file = {});

}  // namespace pipewright
