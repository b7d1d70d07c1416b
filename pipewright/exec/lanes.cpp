#include "pipewright/exec/lanes.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "pipewright/base/error.h"
#include "pipewright/torch/team.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

void check_options(const LaneOptions& options) {
  if (options.lanes >= 1 && options.threads >= 1) return;
  throw InvalidArgument("lanes", fmt::format("{} lanes of {} threads; use 1 or more of each",
                                             options.lanes, options.threads));
}

bool is_norm(torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1d>() != nullptr ||
         module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

void check_norms(const Sequence& model) {
  for (const Layer& layer : model.layers()) {
    if (!layer.module) continue;
    for (const auto& item : layer.module->named_modules(layer.name)) {
      if (!is_norm(*item.value()) || !item.value()->is_training()) continue;
      throw InvalidArgument(
          "lanes", fmt::format("'{}' is a batch norm in training, which looks at the whole batch: "
                               "micro-batches beside each other would change the gradients; use "
                               "another norm, eval mode for it, or one micro-batch",
                               item.key()));
    }
  }
}

}  // namespace

/// What the lanes of one run() share.
struct Lanes::Step {
  Step(const StepInput& of, Clock::time_point at, Tensors wanted, int lanes,
       std::optional<c10::Stream> on)
      : input(of), start(at), parameters(std::move(wanted)), stream(on) {
    sum = std::make_unique<GradientSum>(parameters, static_cast<int>(of.inputs.size()), lanes, on);
    // A gradient arrives on the stream that its parameter's node was made on: the one that sums are
    // on, or a lane would wait for another.
    if (!stream) return;
    for (const torch::Tensor& parameter : parameters)
      nodes.push_back(torch::autograd::impl::grad_accumulator(parameter));
  }

  const StepInput& input;
  Clock::time_point start;
  Tensors parameters;                 // that need a gradient
  std::optional<c10::Stream> stream;  // the caller's
  bool seeded = true;
  std::vector<decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()))> nodes;
  std::unique_ptr<GradientSum> sum;
  LaneResult result;

  double now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
};

Lanes::Lanes(const Sequence& model, Loss loss, const LaneOptions& options)
    : model_(model),
      loss_(std::move(loss)),
      options_((check_options(options), options)),
      whole_(model, 0, model.size(), {}),
      parameters_(model.named_parameters()),
      streams_(static_cast<std::size_t>(options.lanes), DeviceStream(torch::kCPU)) {
  check_norms(model);
  for (DeviceStream& stream : streams_) stream = DeviceStream(options.device);
}

Lanes::~Lanes() = default;

LossValue Lanes::loss_of(const Step& step, int micro_batch, const Tensors& outputs) const {
  const auto m = static_cast<std::size_t>(micro_batch);
  Tensors targets;
  for (const auto& target : step.input.targets[m])
    targets.push_back(target.to(options_.device, /*non_blocking=*/true));
  LossValue value = loss_.value(outputs, targets);
  if (!value.sum.defined() || value.sum.numel() != 1)
    throw InvalidArgument("loss", "its sum must be a tensor of one number");
  if (!step.input.weights.empty()) value.weight = step.input.weights[m];
  return value;
}

/// Forward and backward of a micro-batch, on the thread and stream of a lane.
Tensors Lanes::run_one(Step* step, int lane, int micro_batch) {
  const StepInput& input = step->input;
  const auto m = static_cast<std::size_t>(micro_batch);
  std::vector<Span>& spans = step->result.spans[static_cast<std::size_t>(lane)];
  spans.push_back({.start = step->now(), .micro_batch = micro_batch, .kind = Kind::kForward});
  ForwardContext context;
  context.run_seed = input.run_seed;
  context.step = input.step;
  context.micro_batch = micro_batch;
  context.global_micro_batch = input.first_micro_batch + micro_batch;
  context.training = false;  // of batch norms: there are none
  // Of random draws: those of a GPU cannot be seeded while it is captured, and then there are none.
  context.device = step->seeded ? options_.device : torch::Device(torch::kCPU);
  context.check_finite = input.check_finite;
  context.watch_gradients = input.check_finite;
  SegmentRun run;
  for (const auto& tensor : input.inputs[m])
    run.inputs.push_back(tensor.detach().to(options_.device, /*non_blocking=*/true));
  torch::Tensor scaled;
  {
    const torch::AutoGradMode mode(true);
    const AutocastScope autocast(options_.device, input.precision);
    const LossValue value = loss_of(*step, micro_batch, whole_.forward(context, run).outputs);
    step->result.losses[m] = {value.sum.detach(), value.weight};
    scaled = value.sum / input.weight;
  }
  spans.back().end = step->now();
  spans.push_back({.start = step->now(), .micro_batch = micro_batch, .kind = Kind::kBackward});
  Tensors gradients(step->parameters.size());
  if (scaled.requires_grad()) {
    const Tensors begin = {torch::full_like(scaled, input.loss_scale)};
    gradients = torch::autograd::grad({scaled}, step->parameters, begin, /*retain_graph=*/false,
                                      /*create_graph=*/false, /*allow_unused=*/true);
  }
  spans.back().end = step->now();
  return gradients;
}

void Lanes::serve(Step* step, int lane) {
  const UseStream stream(streams_[static_cast<std::size_t>(lane)]);
  const MemoryScope memory(options_.memory_slot);
  while (const std::optional<int> m = step->sum->next())
    step->sum->add(*m, run_one(step, lane, *m));
  if (options_.device.is_cpu()) step->sum->add_tail();
}

/// The lanes on the caller's own intra-op threads; false: they cannot be.
bool Lanes::run_as_team(Step* step) {
  if (!options_.device.is_cpu() || options_.threads > 1 || options_.lanes == 1) return false;
  std::atomic<int> next_lane{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const bool ran = run_on_team(options_.lanes, [&] {
    try {
      serve(step, next_lane++);
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
      step->sum->abort();  // afterwards: others then fail because of it
    }
  });
  if (failure) std::rethrow_exception(failure);
  return ran;
}

/// Threads of our own: lanes have several each, or are more than the caller's.
void Lanes::run_on_workers(Step* step) {
  if (!workers_) workers_ = std::make_unique<Workers>(options_.lanes, options_.threads);
  workers_->run([&](int lane) { serve(step, lane); }, [&] { step->sum->abort(); });
}

Lanes::Step Lanes::begin(const StepInput& input, Clock::time_point start) const {
  Tensors wanted;
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.requires_grad()) wanted.push_back(parameter);
  }
  std::optional<c10::Stream> stream;
  if (!options_.device.is_cpu()) stream = current_stream(options_.device);
  Step step(input, start, std::move(wanted), options_.lanes, stream);
  step.result.losses.resize(input.inputs.size());
  step.result.spans.resize(static_cast<std::size_t>(options_.lanes));
  for (const DeviceStream& lane : streams_) lane.wait_for_current();
  return step;
}

LaneResult Lanes::finish(Step* step) const {
  if (step->stream) {
    step->sum->add_tail();
    for (const LossValue& loss : step->result.losses) loss.sum.record_stream(*step->stream);
  }
  Tensors made = step->sum->take();
  auto next = made.begin();
  for (const auto& [name, parameter] : parameters_) {
    step->result.gradients.push_back(parameter.requires_grad() ? std::move(*next++)
                                                               : torch::Tensor());
  }
  return std::move(step->result);
}

LaneResult Lanes::run(const StepInput& input, Clock::time_point start, const Tensors& so_far) {
  Step step = begin(input, start);
  Tensors wanted;
  for (std::size_t p = 0; p < so_far.size(); ++p) {
    if (parameters_[p].second.requires_grad()) wanted.push_back(so_far[p]);
  }
  step.sum->go_on_from(wanted);
  if (!run_as_team(&step)) run_on_workers(&step);
  return finish(&step);
}

LaneResult Lanes::run_in_turn(const StepInput& input) {
  Step step = begin(input, Clock::now());
  step.seeded = false;
  while (const std::optional<int> m = step.sum->next()) {
    const int lane = *m % options_.lanes;
    const UseStream stream(streams_[static_cast<std::size_t>(lane)]);
    step.sum->add(*m, run_one(&step, lane, *m));
  }
  if (!step.stream) step.sum->add_tail();
  return finish(&step);
}

}  // namespace pipewright
