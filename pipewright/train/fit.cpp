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

std::string Fit::in_file(const std::string& name) const {
  return options_.name_in_file ? options_.name_in_file(name) : name;
}

/// A shared tensor may be in the file under the name of any of its uses.
std::string Fit::source_of(const std::string& name) const {
  if (set_->contains(in_file(name))) return in_file(name);
  for (const auto& [alias, first] : names_->aliases()) {
    if (first == name && set_->contains(in_file(alias))) return in_file(alias);
  }
  return "";
}

void Fit::look_for(const NamedTensor& use) {
  const std::string source = source_of(use.name);
  if (source.empty()) {
    missing_.push_back(use.name);
    return;
  }
  known_.push_back(source);
  check_form(use, source);
  const std::string second = second_source_of(use);
  if (second.empty()) return;
  known_.push_back(second);
  check_form(use, second);
}

std::string Fit::second_source_of(const NamedTensor& use) const {
  const std::string name = in_file(use.own_name);
  return use.is_first() || !set_->contains(name) || name == source_of(use.name) ? "" : name;
}

void Fit::check_form(const NamedTensor& use, const std::string& source) {
  const TensorRecord& record = set_->find(source);
  const DType own = file_dtype(use.name, use.tensor);
  const bool same_type =
      record.dtype == own || (!exact_ && is_float(record.dtype) && is_float(own));
  if (same_type && use.tensor.sizes() == torch::IntArrayRef(record.shape)) return;
  other_form_.push_back(fmt::format("{} is {} [{}], the model's {} [{}]", source,
                                    dtype_name(record.dtype), fmt::join(record.shape, ", "),
                                    dtype_name(own), fmt::join(use.tensor.sizes(), ", ")));
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
