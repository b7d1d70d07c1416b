#include "pipewright/models/amoebanet.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <vector>

#include "pipewright/base/error.h"
#include "pipewright/models/convolution.h"

namespace pipewright {
namespace {

constexpr const char* kWhere = "amoebanet";
constexpr std::int64_t kSqueeze = 4;  // convolutions within a cell are narrower by that

// ---- What a cell is made of ----

enum class Operation { kNone, kAverage3, kMost3, kMost2, kConvolution1, kConvolution3, kCross7 };

/// An operation on one of the states so far.
struct Step {
  std::size_t state;
  Operation operation;
};

/// Five new states, each the sum of two steps on states before it: 0 is what the last cell gave, 1
/// what the one before that gave. Those in `joined` leave, side by side.
struct Genotype {
  std::array<Step, 10> steps;
  std::vector<std::size_t> joined;
};

const Genotype& genotype(bool reduces) {
  using enum Operation;
  static const Genotype kNormal = {{{{1, kConvolution1},
                                     {1, kMost3},
                                     {1, kNone},
                                     {0, kCross7},
                                     {0, kConvolution1},
                                     {0, kCross7},
                                     {2, kMost3},
                                     {2, kNone},
                                     {1, kAverage3},
                                     {5, kConvolution1}}},
                                   {0, 3, 4, 6}};
  static const Genotype kReduction = {{{{0, kMost2},
                                        {0, kMost3},
                                        {2, kNone},
                                        {1, kConvolution3},
                                        {2, kCross7},
                                        {2, kMost3},
                                        {3, kNone},
                                        {1, kMost2},
                                        {2, kAverage3},
                                        {3, kConvolution1}}},
                                      {4, 5, 6}};
  return reduces ? kReduction : kNormal;
}

/// A convolution of a chain: each is preceded by a ReLU and followed by a norm.
struct Link {
  std::int64_t from, to;
  std::array<std::int64_t, 2> kernel, stride;
};

/// The convolutions of an operation; none of those that have no weights.
std::vector<Link> links_of(Operation operation, std::int64_t channels, std::int64_t stride) {
  const std::int64_t c = channels, narrow = channels / kSqueeze;
  switch (operation) {
    case Operation::kConvolution1: return {{c, c, {1, 1}, {stride, stride}}};
    case Operation::kConvolution3:
      return {{c, narrow, {1, 1}, {1, 1}},
              {narrow, narrow, {3, 3}, {stride, stride}},
              {narrow, c, {1, 1}, {1, 1}}};
    case Operation::kCross7:
      return {{c, narrow, {1, 1}, {1, 1}},
              {narrow, narrow, {1, 7}, {1, stride}},
              {narrow, narrow, {7, 1}, {stride, 1}},
              {narrow, c, {1, 1}, {1, 1}}};
    default: return {};
  }
}

struct ActiveImpl : torch::nn::Module {
  explicit ActiveImpl(const std::vector<Link>& links) {
    for (const auto& link : links) {
      body.push_back(ConvolutionNorm(link.from, link.to, torch::IntArrayRef(link.kernel),
                                     torch::IntArrayRef(link.stride)));
      register_module(std::to_string(body.size()), body.back());
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& one : body) x = one(torch::relu(x));
    return x;
  }
  std::vector<ConvolutionNorm> body;
};
TORCH_MODULE(Active);

/// Halves a picture by two convolutions that look at different pixels.
struct HalveImpl : torch::nn::Module {
  HalveImpl(std::int64_t from, std::int64_t to)
      : even(register_module("even", convolution(from, to / 2, 1, 2))),
        odd(register_module("odd", convolution(from, to / 2, 1, 2))),
        norm(register_module("norm", torch::nn::BatchNorm2d(to))) {}
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(x);
    const auto moved = torch::constant_pad_nd(x.slice(2, 1).slice(3, 1), {0, 1, 0, 1});
    return norm(torch::cat({even(x), odd(moved)}, 1));
  }
  torch::nn::Conv2d even, odd;
  torch::nn::BatchNorm2d norm;
};
TORCH_MODULE(Halve);

torch::Tensor pooled(Operation operation, const torch::Tensor& x, std::int64_t stride) {
  if (operation == Operation::kAverage3)
    return torch::avg_pool2d(x, 3, stride, 1, /*ceil_mode=*/false, /*count_include_pad=*/false);
  if (operation == Operation::kMost3) return torch::max_pool2d(x, 3, stride, 1);
  // Of an odd size the last row and column count too, as with the others.
  return torch::max_pool2d(x, 2, stride, 0, 1, /*ceil_mode=*/true);
}

// ---- Cells ----

/// What a cell gets and makes.
struct CellSizes {
  std::int64_t before_last;  // channels of the state before the last
  std::int64_t last;
  std::int64_t channels;  // of its own states
  bool reduces;           // it halves the picture
  bool after_reduction;   // the state before the last is twice as large
  bool is_last;           // nobody needs what it was given
};

struct CellImpl : torch::nn::Module {
  explicit CellImpl(const CellSizes& of)
      : sizes(of), enter(register_module("enter", Active(one(of.last, of.channels)))) {
    if (of.after_reduction) {
      halve = register_module("halve", Halve(of.before_last, of.channels));
    } else if (of.before_last != of.channels) {
      enter2 = register_module("enter2", Active(one(of.before_last, of.channels)));
    }
    const Genotype& cell = genotype(of.reduces);
    for (std::size_t i = 0; i < cell.steps.size(); ++i) add_step(i, cell.steps[i]);
  }

  Tensors forward(const Tensors& inputs) {
    const torch::Tensor last = inputs.front();
    std::vector<torch::Tensor> states = {enter(last), second(inputs.back())};
    const Genotype& cell = genotype(sizes.reduces);
    for (std::size_t i = 0; i < steps.size(); i += 2) {
      const auto first = steps[i](states[cell.steps[i].state]);
      states.push_back(first + steps[i + 1](states[cell.steps[i + 1].state]));
    }
    std::vector<torch::Tensor> joined;
    for (const std::size_t state : cell.joined) joined.push_back(states[state]);
    if (sizes.is_last) return {torch::cat(joined, 1)};
    return {torch::cat(joined, 1), last};
  }

  torch::Tensor second(const torch::Tensor& x) {
    if (halve) return halve(x);
    return enter2 ? enter2(x) : x;
  }

  static std::vector<Link> one(std::int64_t from, std::int64_t to) {
    return {{from, to, {1, 1}, {1, 1}}};
  }

  void add_step(std::size_t number, const Step& step) {
    const std::int64_t stride = sizes.reduces && step.state < 2 ? 2 : 1;
    const auto links = links_of(step.operation, sizes.channels, stride);
    if (!links.empty()) {
      Active body = register_module("step" + std::to_string(number), Active(links));
      steps.emplace_back([body](torch::Tensor x) mutable { return body(std::move(x)); });
    } else if (step.operation == Operation::kNone) {
      internal_check(stride == 1, "a step that does nothing, and halves");
      steps.emplace_back([](torch::Tensor x) { return x; });
    } else {
      steps.emplace_back([operation = step.operation, stride](const torch::Tensor& x) {
        return pooled(operation, x, stride);
      });
    }
  }

  CellSizes sizes;
  Active enter;
  Active enter2{nullptr};
  Halve halve{nullptr};
  std::vector<std::function<torch::Tensor(torch::Tensor)>> steps;
};
TORCH_MODULE(Cell);

struct StemImpl : torch::nn::Module {
  StemImpl(std::int64_t from, std::int64_t to)
      : body(register_module("body", ConvolutionNorm(from, to, 3, 2))) {}
  torch::Tensor forward(torch::Tensor x) { return body(torch::relu(x)); }
  ConvolutionNorm body;
};
TORCH_MODULE(Stem);

double cell_cost(const CellSizes& s, std::int64_t size) {
  const std::int64_t left = s.reduces ? (size + 1) / 2 : size;
  double cost = convolution_cost(s.last, s.channels, 1, size);
  if (s.after_reduction || s.before_last != s.channels)
    cost += convolution_cost(s.before_last, s.channels, 1, size);
  for (const Step& step : genotype(s.reduces).steps) {
    for (const auto& link : links_of(step.operation, s.channels, 1)) {
      cost += convolution_cost(link.from, link.to, 1, left) *
              static_cast<double>(link.kernel[0] * link.kernel[1]);
    }
  }
  return cost;
}

void check(const AmoebaNetOptions& o) {
  check_sizes(kWhere, {{"layers", o.layers},
                       {"filters", o.filters},
                       {"channels", o.channels},
                       {"classes", o.classes},
                       {"image", o.image}});
  if (o.layers % 3 != 0)
    throw InvalidArgument(kWhere, fmt::format("layers = {} is not a multiple of 3", o.layers));
  if (o.filters % 16 != 0)
    throw InvalidArgument(kWhere, fmt::format("filters = {} is not a multiple of 16", o.filters));
}

class Builder {
 public:
  explicit Builder(const AmoebaNetOptions& options)
      : o_(options), channels_(o_.filters / 4), size_((o_.image + 1) / 2) {
    model_.set_seed(o_.seed);
  }

  Sequence make() {
    add_made(&model_, o_.later, "stem1",
             [from = o_.channels, to = channels_] { return Stem(from, to); },
             {.cost = convolution_cost(o_.channels, channels_, 3, size_)});
    before_last_ = last_ = channels_;
    add_cell("stem2", true);
    add_cell("stem3", true);
    for (int group = 1; group <= 3; ++group) {
      const std::int64_t cells = o_.layers / 3;
      for (std::int64_t i = 1; i <= cells; ++i)
        add_cell(fmt::format("cell{}_{}", group, i), false, group == 3 && i == cells);
      if (group < 3) add_cell(fmt::format("reduce{}", group), true);
    }
    add_made(&model_, o_.later, "head",
             [from = last_, classes = o_.classes] { return Classifier(from, classes); },
             {.cost = convolution_cost(last_, o_.classes, 1, 1)});
    return std::move(model_);
  }

 private:
  void add_cell(const std::string& name, bool reduces, bool is_last = false) {
    if (reduces) channels_ *= 2;
    const CellSizes sizes = {.before_last = before_last_,
                             .last = last_,
                             .channels = channels_,
                             .reduces = reduces,
                             .after_reduction = after_reduction_,
                             .is_last = is_last};
    add_made(&model_, o_.later, name, [sizes] { return Cell(sizes); },
             {.cost = cell_cost(sizes, size_)});
    before_last_ = last_;
    last_ = channels_ * static_cast<std::int64_t>(genotype(reduces).joined.size());
    after_reduction_ = reduces;
    if (reduces) size_ = (size_ + 1) / 2;
  }

  AmoebaNetOptions o_;
  Sequence model_;
  std::int64_t channels_;
  std::int64_t size_;
  std::int64_t before_last_ = 0;
  std::int64_t last_ = 0;
  bool after_reduction_ = false;
};

}  // namespace

Sequence make_amoebanet(const AmoebaNetOptions& options) {
  check(options);
  return Builder(options).make();
}

}  // namespace pipewright
