#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipewright/checkpoint/tensor_set.h"
#include "pipewright/train/checkpoint.h"
#include "pipewright/train/tensor_names.h"

namespace pipewright {

/// Which tensors of files belong to which of a model, and what does not fit. A process finds out
/// about its own layers; joined() is about all of them.
class Fit {
 public:
  Fit() = default;

  /// `exact`: of the same element type; else floats may be of any.
  Fit(const TensorSet& set, const LoadOptions& options, const TensorNames& names, bool exact);

  /// Looks for the tensor of a use in the model.
  void look_for(const NamedTensor& use);

  /// That a tensor of the set has its place, though it was not looked for.
  void knows(const std::string& name_in_file) { known_.push_back(name_in_file); }

  /// How the file holds a tensor that was looked for; empty: it is not there.
  NameInFile source_of(const std::string& name) const;

  /// Where the file has a tensor once more, under the name of a later use; empty: it has not.
  NameInFile second_source_of(const NamedTensor& use) const;

  nlohmann::json found() const;  // for joined()

  /// From what each process found: missing, unexpected and of another form, in all of the model.
  struct Misfits {
    std::vector<std::string> missing;
    std::vector<std::string> unexpected;
    std::vector<std::string> other_form;  // with both forms
  };
  static Misfits joined(const std::vector<nlohmann::json>& found, const TensorSet& set);

 private:
  NameInFile in_file(const std::string& name) const;
  bool holds(const NameInFile& name) const;
  void take(const NamedTensor& use, const NameInFile& source);

  const TensorSet* set_ = nullptr;
  LoadOptions options_;
  const TensorNames* names_ = nullptr;
  bool exact_ = true;
  std::vector<std::string> known_;
  std::vector<std::string> missing_;
  std::vector<std::string> other_form_;
};

/// Throws InvalidArgument with all that does not fit and is not allowed by the options; `path` is
/// where the tensors are from.
void refuse_misfits(const Fit::Misfits& misfits, const LoadOptions& options,
                    const std::string& path);

}  // namespace pipewright
