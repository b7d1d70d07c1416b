#include "pipewright/train/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/text.h"
#include "pipewright/train/tensor_bytes.h"

namespace pipewright {
namespace {

using nlohmann::json;

constexpr std::size_t kMostNames = 20;  // of a kind, in a message

bool is_float(DType dtype) {
  const auto type = torch_dtype(dtype);
  return type && c10::isFloatingType(*type);
}

std::string listed(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const std::size_t count = std::min(names.size(), kMostNames);
  std::string text =
      fmt::format("; {}: {}", what, fmt::join(names.begin(), names.begin() + count, ", "));
  if (names.size() > count) text += fmt::format(" and {} more", names.size() - count);
  return text;
}

std::vector<std::string> strings(const std::vector<json>& found, const char* member) {
  std::set<std::string> all;
  for (const json& one : found) {
    for (const json& name : one.at(member)) all.insert(name.get<std::string>());
  }
  return {all.begin(), all.end()};
}

}  // namespace

Fit::Fit(const TensorSet& set, const LoadOptions& options, const TensorNames& names, bool exact)
    : set_(&set), options_(options), names_(&names), exact_(exact) {}

NameInFile Fit::in_file(const std::string& name) const {
  return options_.name_in_file ? options_.name_in_file(name) : NameInFile(name);
}

bool Fit::holds(const NameInFile& name) const {
  return !name.empty() &&
         std::all_of(name.parts.begin(), name.parts.end(),
                     [&](const std::string& part) { return set_->contains(part); });
}

/// A shared tensor may be in the file under the name of any of its uses.
NameInFile Fit::source_of(const std::string& name) const {
  if (NameInFile own = in_file(name); holds(own)) return own;
  for (const auto& [alias, first] : names_->aliases()) {
    if (first != name) continue;
    if (NameInFile other = in_file(alias); holds(other)) return other;
  }
  return {};
}

void Fit::look_for(const NamedTensor& use) {
  const NameInFile source = source_of(use.name);
  if (source.empty()) {
    missing_.push_back(use.name);
    return;
  }
  take(use, source);
  const NameInFile second = second_source_of(use);
  if (!second.empty()) take(use, second);
}

NameInFile Fit::second_source_of(const NamedTensor& use) const {
  if (use.is_first()) return {};
  const NameInFile name = in_file(use.own_name);
  return !holds(name) || name == source_of(use.name) ? NameInFile() : name;
}

void Fit::take(const NamedTensor& use, const NameInFile& source) {
  known_.insert(known_.end(), source.parts.begin(), source.parts.end());
  const DType own = file_dtype(use.name, use.tensor);
  bool same_type = true;
  for (const std::string& part : source.parts) {
    const DType dtype = set_->find(part).dtype;
    same_type = same_type && (dtype == own || (!exact_ && is_float(dtype) && is_float(own)));
  }
  const auto shape = shape_of(*set_, source);
  if (same_type && shape && use.tensor.sizes() == torch::IntArrayRef(*shape)) return;
  std::vector<std::string> forms;
  for (const std::string& part : source.parts) {
    const TensorRecord& record = set_->find(part);
    forms.push_back(fmt::format("{} is {} [{}]", part, dtype_name(record.dtype),
                                fmt::join(record.shape, ", ")));
  }
  other_form_.push_back(fmt::format("{}, the model's {} [{}]{}", fmt::join(forms, ", "),
                                    dtype_name(own), fmt::join(use.tensor.sizes(), ", "),
                                    source.transposed ? " transposed" : ""));
}

json Fit::found() const {
  return {{"known", known_}, {"missing", missing_}, {"other_form", other_form_}};
}

Fit::Misfits Fit::joined(const std::vector<json>& found, const TensorSet& set) {
  Misfits misfits;
  misfits.missing = strings(found, "missing");
  misfits.other_form = strings(found, "other_form");
  const auto known = strings(found, "known");
  const auto names = set.names();
  std::set_difference(names.begin(), names.end(), known.begin(), known.end(),
                      std::back_inserter(misfits.unexpected));
  return misfits;
}

void refuse_misfits(const Fit::Misfits& misfits, const LoadOptions& options,
                    const std::string& path) {
  std::vector<std::string> unexpected;
  for (const std::string& name : misfits.unexpected) unexpected.push_back(shown(name));
  std::string text;
  if (!options.allow_missing) text += listed("missing", misfits.missing);
  if (!options.allow_unexpected) text += listed("unexpected", unexpected);
  text += listed("of another shape or type", misfits.other_form);
  if (text.empty()) return;
  throw InvalidArgument("checkpoint", fmt::format("'{}' does not fit the model{}", path, text));
}

}  // namespace pipewright
