#include "pipewright/models/click_layers.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"
#include "pipewright/models/transformer.h"

namespace pipewright {

FieldTableImpl::FieldTableImpl(const ClickModelSizes& sizes, std::int64_t dim, double deviation)
    : fields(sizes.fields), buckets(sizes.buckets), sparse(sizes.sparse) {
  weight = register_parameter("weight", torch::empty({fields * buckets, dim}));
  torch::nn::init::normal_(weight, 0, deviation);
}

torch::Tensor FieldTableImpl::forward(const torch::Tensor& ids) {
  if (ids.dim() != 2 || ids.size(1) != fields) {
    throw InvalidArgument("clicks", fmt::format("ids have {} dimensions, the last of size {}; the "
                                                "model takes (rows, {})",
                                                ids.dim(), ids.size(-1), fields));
  }
  const auto first = torch::arange(fields, ids.options()) * buckets;
  return torch::embedding(weight, ids + first, -1, false, sparse);
}

SingleFeaturesImpl::SingleFeaturesImpl(const ClickModelSizes& sizes) {
  table = register_module("table", FieldTable(sizes, 1, 0.01));
  numeric = register_module("numeric", torch::nn::Linear(sizes.numeric, 1));
}

torch::Tensor SingleFeaturesImpl::forward(const torch::Tensor& numbers, const torch::Tensor& ids) {
  return table(ids).sum({1, 2}) + numeric(numbers).squeeze(1);
}

HiddenImpl::HiddenImpl(std::int64_t from, std::int64_t to, double share)
    : dropout(share), linear(register_module("linear", torch::nn::Linear(from, to))) {}

torch::Tensor HiddenImpl::forward(const torch::Tensor& x) {
  return torch::dropout(torch::relu(linear(x)), dropout, is_training());
}

ClickHeadImpl::ClickHeadImpl(std::int64_t from)
    : linear(register_module("linear", torch::nn::Linear(from, 1))) {}

torch::Tensor ClickHeadImpl::forward(const Tensors& x) {
  torch::Tensor logits = linear(x.at(0)).squeeze(1);
  for (std::size_t i = 1; i < x.size(); ++i) logits = logits + x[i];
  return logits;
}

std::int64_t add_hidden(const ClickModelSizes& sizes, const std::string& name, std::int64_t from,
                        Sequence* model) {
  for (std::int64_t i = 0; i < sizes.depth; ++i) {
    const std::int64_t to = sizes.width;
    const double share = sizes.dropout;
    add_made(model, sizes.later, fmt::format("{}{}", name, i),
             [from, to, share] { return Hidden(from, to, share); },
             {.cost = static_cast<double>(from * to)});
    from = to;
  }
  return from;
}

void add_head(const ClickModelSizes& sizes, std::int64_t from, std::vector<std::string> pop,
              Sequence* model) {
  add_made(model, sizes.later, "head", [from] { return ClickHead(from); },
           {.pop = std::move(pop), .cost = static_cast<double>(from)});
}

}  // namespace pipewright
