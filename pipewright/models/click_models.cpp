#include "pipewright/models/click_models.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"
#include "pipewright/models/click_layers.h"
#include "pipewright/models/transformer.h"

namespace pipewright {
namespace {

constexpr double kDeviation = 0.1;  // of embeddings at the start

void check(const char* where, const ClickModelSizes& s) {
  check_sizes(where, {{"numeric", s.numeric},
                      {"fields", s.fields},
                      {"buckets", s.buckets},
                      {"dim", s.dim},
                      {"width", s.width},
                      {"depth", s.depth}});
  if (s.fields < 2) throw InvalidArgument(where, "fields = 1; use 2 or more");
  check_dropout(where, s.dropout);
}

/// Embeddings one after the other, then the numbers.
torch::Tensor side_by_side(const torch::Tensor& vectors, const torch::Tensor& numbers) {
  return torch::cat({vectors.flatten(1), numbers}, 1);  // (B, F * dim + N)
}

std::int64_t width_of_all(const ClickModelSizes& s) { return s.fields * s.dim + s.numeric; }

double cost_of_embedding(const ClickModelSizes& s) {
  return static_cast<double>(s.fields * (s.dim + 1) + s.numeric);
}

struct WideEmbedImpl : torch::nn::Module {
  explicit WideEmbedImpl(const ClickModelSizes& s) : sizes(s) {
    single = register_module("single", SingleFeatures(s));
    deep = register_module("deep", FieldTable(s, s.dim, kDeviation));
    if (s.crosses == 0) return;
    crossed = register_parameter("crossed", torch::empty({(s.fields - 1) * s.crosses, 1}));
    torch::nn::init::normal_(crossed, 0, 0.01);
  }

  /// Ids of the pairs of neighbours: (B, F - 1). A pair's place is that of its number among all,
  /// scattered by a prime.
  torch::Tensor pairs(const torch::Tensor& ids) const {
    const std::int64_t n = sizes.fields - 1;
    const auto numbers = ids.slice(1, 0, n) * sizes.buckets + ids.slice(1, 1);
    const auto place = (numbers * 1'000'003).remainder(sizes.crosses);
    return place + torch::arange(n, ids.options()) * sizes.crosses;
  }

  Tensors forward(const torch::Tensor& numbers, const torch::Tensor& ids) {
    torch::Tensor wide = single(numbers, ids);
    if (crossed.defined())
      wide = wide + torch::embedding(crossed, pairs(ids), -1, false, sizes.sparse).sum({1, 2});
    return {side_by_side(deep(ids), numbers), wide};
  }

  ClickModelSizes sizes;
  SingleFeatures single{nullptr};
  FieldTable deep{nullptr};
  torch::Tensor crossed;
};
TORCH_MODULE(WideEmbed);

struct FactorsImpl : torch::nn::Module {
  explicit FactorsImpl(const ClickModelSizes& s) {
    single = register_module("single", SingleFeatures(s));
    table = register_module("table", FieldTable(s, s.dim, kDeviation));
    numeric = register_parameter("numeric", torch::empty({s.numeric, s.dim}));
    torch::nn::init::normal_(numeric, 0, kDeviation);
  }

  Tensors forward(const torch::Tensor& numbers, const torch::Tensor& ids) {
    const auto of_fields = table(ids);                        // (B, F, dim)
    const auto of_numbers = numbers.unsqueeze(2) * numeric;   // (B, N, dim)
    const auto all = torch::cat({of_fields, of_numbers}, 1);  // (B, F + N, dim)
    // The products of every two, summed: (sum^2 - sum of squares) / 2.
    const auto products = (all.sum(1).pow(2) - all.pow(2).sum(1)).sum(1) / 2;
    return {all.flatten(1), single(numbers, ids) + products};
  }

  SingleFeatures single{nullptr};
  FieldTable table{nullptr};
  torch::Tensor numeric;
};
TORCH_MODULE(Factors);

/// Embeddings go beside the numbers, which pass the layers at the bottom first.
struct DlrmEmbedImpl : torch::nn::Module {
  explicit DlrmEmbedImpl(const ClickModelSizes& s)
      : table(register_module("table", FieldTable(s, s.dim, kDeviation))) {}
  Tensors forward(const torch::Tensor& numbers, const torch::Tensor& ids) {
    return {numbers, table(ids)};
  }
  FieldTable table{nullptr};
};
TORCH_MODULE(DlrmEmbed);

struct InteractImpl : torch::nn::Module {
  InteractImpl(std::int64_t from, std::int64_t dim)
      : linear(register_module("linear", torch::nn::Linear(from, dim))) {}

  torch::Tensor forward(const torch::Tensor& bottom, const torch::Tensor& vectors) {
    const auto numbers = linear(bottom);                                    // (B, dim)
    const auto all = torch::cat({numbers.unsqueeze(1), vectors}, 1);        // (B, F + 1, dim)
    const auto products = torch::bmm(all, all.transpose(1, 2)).flatten(1);  // (B, (F + 1)^2)
    const std::int64_t n = all.size(1);
    const auto pairs = torch::tril_indices(n, n, -1, products.options().dtype(torch::kLong));
    return torch::cat({numbers, products.index_select(1, pairs[0] * n + pairs[1])}, 1);
  }

  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Interact);

struct DinEmbedImpl : torch::nn::Module {
  explicit DinEmbedImpl(const ClickModelSizes& s)
      : table(register_module("table", FieldTable(s, s.dim, kDeviation))) {}
  Tensors forward(const torch::Tensor& numbers, const torch::Tensor& ids) {
    return {table(ids), (ids != 0).to(numbers.scalar_type()), numbers};
  }
  FieldTable table{nullptr};
};
TORCH_MODULE(DinEmbed);

struct AttendImpl : torch::nn::Module {
  explicit AttendImpl(const ClickModelSizes& s) : history(s.history) {
    first = register_module("first", torch::nn::Linear(4 * s.dim, s.width / 2 + 1));
    second = register_module("second", torch::nn::Linear(s.width / 2 + 1, 1));
  }

  /// vectors (B, F, dim), present (B, F), numbers (B, N) -> (B, (F - H + 1) * dim + N)
  torch::Tensor forward(const torch::Tensor& vectors, const torch::Tensor& present,
                        const torch::Tensor& numbers) {
    const std::int64_t others = vectors.size(1) - history;
    const auto past = vectors.slice(1, others);                               // (B, H, dim)
    const auto shown = vectors.slice(1, others - 1, others).expand_as(past);  // (B, H, dim)
    const auto beside = torch::cat({shown, past, shown * past, shown - past}, 2);
    const auto weights = second(torch::relu(first(beside))) * present.slice(1, others).unsqueeze(2);
    const auto interest = (weights * past).sum(1, true);  // (B, 1, dim)
    return side_by_side(torch::cat({vectors.slice(1, 0, others), interest}, 1), numbers);
  }

  std::int64_t history;
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Attend);

}  // namespace

Sequence make_wide_deep(const ClickModelSizes& sizes) {
  check("wide_deep", sizes);
  if (sizes.crosses < 0)
    throw InvalidArgument("wide_deep", fmt::format("crosses = {}; use 0 or more", sizes.crosses));
  Sequence model;
  model.set_seed(sizes.seed);
  add_made(&model, sizes.later, "embed", [sizes] { return WideEmbed(sizes); },
           {.stash = {"wide"}, .cost = cost_of_embedding(sizes)});
  add_head(sizes, add_hidden(sizes, "hidden", width_of_all(sizes), &model), {"wide"}, &model);
  return model;
}

Sequence make_deepfm(const ClickModelSizes& sizes) {
  check("deepfm", sizes);
  Sequence model;
  model.set_seed(sizes.seed);
  add_made(&model, sizes.later, "embed", [sizes] { return Factors(sizes); },
           {.stash = {"factors"}, .cost = 3 * cost_of_embedding(sizes)});
  const std::int64_t width = (sizes.fields + sizes.numeric) * sizes.dim;
  add_head(sizes, add_hidden(sizes, "hidden", width, &model), {"factors"}, &model);
  return model;
}

Sequence make_dlrm(const ClickModelSizes& sizes) {
  check("dlrm", sizes);
  Sequence model;
  model.set_seed(sizes.seed);
  add_made(&model, sizes.later, "embed", [sizes] { return DlrmEmbed(sizes); },
           {.stash = {"vectors"}, .cost = cost_of_embedding(sizes)});
  const std::int64_t bottom = add_hidden(sizes, "bottom", sizes.numeric, &model);
  const std::int64_t n = sizes.fields + 1;
  add_made(
      &model, sizes.later, "interact", [bottom, dim = sizes.dim] { return Interact(bottom, dim); },
      {.pop = {"vectors"}, .cost = static_cast<double>(bottom * sizes.dim + n * n * sizes.dim)});
  const std::int64_t width = sizes.dim + n * (n - 1) / 2;
  add_head(sizes, add_hidden(sizes, "hidden", width, &model), {}, &model);
  return model;
}

Sequence make_din(const ClickModelSizes& sizes) {
  check("din", sizes);
  if (sizes.history < 1 || sizes.history >= sizes.fields) {
    throw InvalidArgument("din", fmt::format("history = {} of {} fields; use 1 to {}: the field "
                                             "before the history is what is shown",
                                             sizes.history, sizes.fields, sizes.fields - 1));
  }
  Sequence model;
  model.set_seed(sizes.seed);
  add_made(&model, sizes.later, "embed", [sizes] { return DinEmbed(sizes); },
           {.cost = cost_of_embedding(sizes)});
  add_made(&model, sizes.later, "attend", [sizes] { return Attend(sizes); },
           {.cost = static_cast<double>(sizes.history * 4 * sizes.dim * (sizes.width / 2 + 1))});
  const std::int64_t width = (sizes.fields - sizes.history + 1) * sizes.dim + sizes.numeric;
  add_head(sizes, add_hidden(sizes, "hidden", width, &model), {}, &model);
  return model;
}

}  // namespace pipewright
