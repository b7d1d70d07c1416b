#include "pipewright/graph/spread.h"

#include <fmt/format.h>

#include <cmath>

namespace pipewright {
namespace {

using Kind = Spread::Kind;

bool is_number(const c10::IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool();
}

double number(const c10::IValue& value) {
  if (value.isBool()) return value.toBool() ? 1 : 0;
  return value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble();
}

/// The elements of a list or tuple; none for other values.
std::optional<std::vector<c10::IValue>> elements(const c10::IValue& value) {
  if (value.isTuple()) return std::vector<c10::IValue>(value.toTupleRef().elements().vec());
  if (!value.isList()) return std::nullopt;
  std::vector<c10::IValue> result;
  const c10::List<c10::IValue> list = value.toList();
  for (std::size_t i = 0; i < list.size(); ++i) result.push_back(list.get(i));
  return result;
}

c10::IValue rebuilt(const c10::IValue& like, std::vector<c10::IValue> items) {
  if (like.isTuple()) return c10::ivalue::Tuple::create(std::move(items));
  c10::impl::GenericList list(like.toList().elementType());
  for (c10::IValue& item : items) list.push_back(std::move(item));
  return list;
}

std::optional<c10::IValue> sized_part(const c10::IValue& whole, std::int64_t value) {
  if (whole.isInt()) return c10::IValue(value);
  if (whole.isDouble()) return c10::IValue(static_cast<double>(value));
  if (whole.isTensor()) return c10::IValue(torch::full_like(whole.toTensor(), value));
  return std::nullopt;
}

/// `dim` as two: how often all samples follow each other, and the samples with their entries.
torch::Tensor opened(const torch::Tensor& tensor, std::int64_t dim, std::int64_t outer) {
  return tensor.unflatten(dim, {outer, tensor.size(dim) / outer});
}

torch::Tensor rows_part(const torch::Tensor& whole, const Spread& spread, const TwoParts& parts,
                        int part) {
  const std::int64_t start = parts.start(part) * spread.fold;
  const std::int64_t size = parts.size(part) * spread.fold;
  if (spread.outer == 1) return whole.narrow(spread.dim, start, size).clone();  // keeps its strides
  return opened(whole, spread.dim, spread.outer)
      .narrow(spread.dim + 1, start, size)
      .flatten(spread.dim, spread.dim + 1)
      .clone();
}

// ---- Comparing ----

/// Sums in another order differ in the last digits.
bool close(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (!a.is_floating_point()) return a.equal(b);
  const double tolerance = a.element_size() >= 8 ? 1e-9 : a.element_size() == 4 ? 1e-4 : 1e-2;
  return torch::allclose(a, b, tolerance, tolerance, /*equal_nan=*/true);
}

/// The dimension along which the parts lie one after the other, or in turns.
std::optional<Spread> laid_out(const torch::Tensor& whole, const torch::Tensor& first,
                               const torch::Tensor& second, const TwoParts& parts) {
  if (first.dim() != whole.dim() || second.dim() != whole.dim()) return std::nullopt;
  for (std::int64_t dim = 0; dim < whole.dim(); ++dim) {
    const std::int64_t entries = whole.size(dim) / parts.rows;  // a sample
    if (entries == 0 || whole.size(dim) != entries * parts.rows) continue;
    auto sizes = whole.sizes().vec();
    sizes[static_cast<std::size_t>(dim)] = entries * parts.first;
    if (first.sizes() != c10::IntArrayRef(sizes)) continue;
    sizes[static_cast<std::size_t>(dim)] = entries * parts.size(1);
    if (second.sizes() != c10::IntArrayRef(sizes)) continue;
    for (std::int64_t outer = 1; outer <= entries; ++outer) {
      if (entries % outer != 0) continue;
      const torch::Tensor joined =
          torch::cat({opened(first, dim, outer), opened(second, dim, outer)}, dim + 1);
      if (close(whole, joined.flatten(dim, dim + 1)))
        return Spread::rows(dim, entries / outer, outer);
    }
  }
  return std::nullopt;
}

Spread compare_tensors(const torch::Tensor& whole, const torch::Tensor& first,
                       const torch::Tensor& second, const TwoParts& parts) {
  if (!whole.defined() || !first.defined() || !second.defined()) {
    return Spread::of(whole.defined() == first.defined() ? Kind::kShared : Kind::kMixed);
  }
  if (close(whole, first) && close(whole, second)) return Spread::shared();
  if (const auto found = laid_out(whole, first, second, parts)) return *found;
  if (whole.sizes() != first.sizes() || whole.sizes() != second.sizes())
    return Spread::of(Kind::kMixed);
  if (!whole.is_floating_point() && whole.numel() == 1) {
    const double size = whole.item<double>() / static_cast<double>(parts.rows);
    if (size == std::floor(size) && first.item<double>() == size * parts.first)
      return {Kind::kSize, 0, static_cast<std::int64_t>(size)};
  }
  if (close(whole, first + second)) return Spread::of(Kind::kSum);
  if (!whole.is_floating_point()) return Spread::of(Kind::kMixed);
  const double share = static_cast<double>(parts.first) / static_cast<double>(parts.rows);
  if (close(whole, first * share + second * (1 - share))) return Spread::of(Kind::kMean);
  return Spread::of(Kind::kMixed);
}

Spread compare_numbers(double whole, double first, double second, const TwoParts& parts) {
  if (whole == first && whole == second) return Spread::shared();
  const double fold = whole / static_cast<double>(parts.rows);
  const bool sized =
      fold == std::floor(fold) && first == fold * parts.first && second == fold * parts.size(1);
  if (!sized) return Spread::of(Kind::kMixed);
  return {Kind::kSize, 0, static_cast<std::int64_t>(fold)};
}

Spread compare_parts(const std::vector<c10::IValue>& whole, const std::vector<c10::IValue>& first,
                     const std::vector<c10::IValue>& second, const TwoParts& parts) {
  if (whole.size() != first.size() || whole.size() != second.size())
    return Spread::of(Kind::kMixed);
  Spread result = Spread::of(Kind::kParts);
  bool all_shared = true;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    result.parts.push_back(compare(whole[i], first[i], second[i], parts));
    all_shared = all_shared && result.parts.back() == Spread::shared();
  }
  return all_shared ? Spread::shared() : result;
}

}  // namespace

std::string to_text(const Spread& spread) {
  switch (spread.kind) {
    case Kind::kShared: return "is shared by all micro-batches";
    case Kind::kRows:
      return spread.fold * spread.outer == 1
                 ? fmt::format("carries the batch in dimension {}", spread.dim)
                 : fmt::format("carries the batch in dimension {}, {} entries a sample", spread.dim,
                               spread.fold * spread.outer);
    case Kind::kSize:
      return spread.fold == 1 ? "is the number of rows"
                              : fmt::format("is {} times the number of rows", spread.fold);
    case Kind::kSum: return "is a sum over the batch";
    case Kind::kMean: return "is a mean over the batch";
    case Kind::kRatio: return "is a mean over the batch by count";
    case Kind::kMixed: return "mixes samples";
    case Kind::kParts: return "is a list of values that differ in this";
  }
  return "";
}

std::optional<c10::IValue> part_of(const c10::IValue& whole, const Spread& spread,
                                   const TwoParts& parts, int part) {
  switch (spread.kind) {
    case Kind::kShared:
      return whole.isTensor() && whole.toTensor().defined() ? c10::IValue(whole.toTensor().clone())
                                                            : whole;
    case Kind::kRows: return c10::IValue(rows_part(whole.toTensor(), spread, parts, part));
    case Kind::kSize: return sized_part(whole, spread.fold * parts.size(part));
    case Kind::kParts: {
      const auto items = elements(whole);
      if (!items) return std::nullopt;
      std::vector<c10::IValue> result;
      for (std::size_t i = 0; i < items->size(); ++i) {
        auto item = part_of((*items)[i], spread.parts.at(i), parts, part);
        if (!item) return std::nullopt;
        result.push_back(std::move(*item));
      }
      return rebuilt(whole, std::move(result));
    }
    default: return std::nullopt;
  }
}

Spread compare(const c10::IValue& whole, const c10::IValue& first, const c10::IValue& second,
               const TwoParts& parts) {
  if (whole.tagKind() != first.tagKind() || whole.tagKind() != second.tagKind())
    return Spread::of(Kind::kMixed);
  if (whole.isTensor())
    return compare_tensors(whole.toTensor(), first.toTensor(), second.toTensor(), parts);
  if (is_number(whole)) return compare_numbers(number(whole), number(first), number(second), parts);
  if (const auto items = elements(whole))
    return compare_parts(*items, *elements(first), *elements(second), parts);
  if (whole.isNone()) return Spread::shared();
  if (whole.isString() || whole.isDevice())
    return Spread::of(whole == first ? Kind::kShared : Kind::kMixed);
  return Spread::of(Kind::kMixed);
}

}  // namespace pipewright
