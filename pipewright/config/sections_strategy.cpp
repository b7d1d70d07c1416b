#include <limits>
#include <string_view>

#include "pipewright/config/sections.h"

namespace pipewright::config {
namespace {

/// The scale multiplies a float32 loss.
Range scale_range() { return {1, std::numeric_limits<float>::max(), false, false, true}; }

std::string misformed_device(const std::string& text) {
  std::string_view rest = text;
  if (rest == "cpu" || rest == "cuda") return "";
  const bool cuda = rest.starts_with("cuda:");
  if (cuda) rest.remove_prefix(5);
  const bool number = !rest.empty() && rest.size() <= 3 &&
                      rest.find_first_not_of("0123456789") == std::string_view::npos;
  return cuda && number ? "" : "is no device; write \"cpu\" or \"cuda:0\"";
}

}  // namespace

Section pipeline_section(const Known& known) {
  return section(
      "pipeline", "How the model lies over ranks, and what runs when.",
      {{.name = "ranks",
        .field = in<&Config::pipeline, &Pipeline::ranks>,
        .words = "Workers that each hold a part of the model.",
        .range = count(1)},
       {.name = "micro_batches",
        .field = in<&Config::pipeline, &Pipeline::micro_batches>,
        .words = "Slices of the mini-batch, for each replica.",
        .range = count(1)},
       {.name = "schedule",
        .field = in<&Config::pipeline, &Pipeline::schedule>,
        .words = "Which micro-batch runs when on which rank.",
        .choices = names_of(known.schedules)},
       {.name = "chunks",
        .field = in<&Config::pipeline, &Pipeline::chunks>,
        .words = "Stages a rank; 0: what the schedule usually has.",
        .range = count(0)},
       {.name = "vertical_sync",
        .field = in<&Config::pipeline, &Pipeline::vertical_sync>,
        .words = "All stages use, for a micro-batch, the weights' version that the first one used.",
        .counts = {"pipeline.schedule", {"pipedream", "eager-pipedream"}}},
       {.name = "partition",
        .field = in<&Config::pipeline, &Pipeline::partition>,
        .words = "What is balanced when layers become stages.",
        .choices = {{"time", "measured time of the layers"},
                    {"memory", "measured bytes of the stages, as the schedule fills them"},
                    {"estimate", "the model's own estimate of its work, without measuring"},
                    {"parameters", "numbers of parameters"},
                    {"manual", "nothing: sizes says it"}}},
       {.name = "sizes",
        .field = in<&Config::pipeline, &Pipeline::sizes>,
        .words = "Layers by stage.",
        .range = count(1),
        .counts = {"pipeline.partition", {"manual"}}},
       {.name = "devices",
        .field = in<&Config::pipeline, &Pipeline::devices>,
        .words = "One device for all ranks or one a rank; empty: cpu.",
        .misformed = misformed_device},
       {.name = "transport",
        .field = in<&Config::pipeline, &Pipeline::transport>,
        .words = "How ranks talk to each other.",
        .choices = {{"threads", "ranks are threads of one process"},
                    {"gloo", "ranks are processes, started by pipewright launch or the like"},
                    {"nccl", "the same, between GPUs"}}},
       {.name = "threads_per_rank",
        .field = in<&Config::pipeline, &Pipeline::threads_per_rank>,
        .words = "Threads that a rank computes with; 0: a fair share of the cores.",
        .range = count(0)},
       {.name = "pin",
        .field = in<&Config::pipeline, &Pipeline::pin>,
        .words = "A rank stays on its share of the machine's cores. false: where several runs use "
                 "one machine."},
       {.name = "deadline_seconds",
        .field = in<&Config::pipeline, &Pipeline::deadline_seconds>,
        .words = "The longest wait for another rank.",
        .range = above(0)},
       {.name = "life_deadline_seconds",
        .field = in<&Config::pipeline, &Pipeline::life_deadline_seconds>,
        .words = "A process that gives no sign of life for so long is lost.",
        .range = above(0),
        .counts = {"pipeline.transport", {"gloo", "nccl"}}},
       {.name = "address",
        .field = in<&Config::pipeline, &Pipeline::address>,
        .words = "This machine's address for the others; empty: found from MASTER_ADDR.",
        .counts = {"pipeline.transport", {"gloo", "nccl"}}},
       {.name = "shared_memory",
        .field = in<&Config::pipeline, &Pipeline::shared_memory>,
        .words = "Processes of one machine exchange tensors through memory that they share.",
        .counts = {"pipeline.transport", {"gloo"}}}});
}

Section recompute_section() {
  return section("recompute", "What is run again before the backward instead of held in memory.",
                 {{.name = "mode",
                   .field = in<&Config::recompute, &Recompute::mode>,
                   .words = "What of a stage's forward is run again.",
                   .choices = {{"none", "nothing"},
                               {"all", "all of it, from the stage's input"},
                               {"except_last", "all of it, but for the last micro-batch"},
                               {"every", "the input of every n-th layer is held"},
                               {"named", "the inputs of the layers in checkpoints are held"},
                               {"sqrt", "as many blocks as the root of the stage's layers"},
                               {"budget", "as little as fits the budget, by measured costs"}}},
                  {.name = "every",
                   .field = in<&Config::recompute, &Recompute::every>,
                   .words = "Layers from one held input to the next.",
                   .range = count(1),
                   .counts = {"recompute.mode", {"every"}}},
                  {.name = "checkpoints",
                   .field = in<&Config::recompute, &Recompute::checkpoints>,
                   .words = "Names of the layers whose inputs are held.",
                   .counts = {"recompute.mode", {"named"}}},
                  {.name = "budget",
                   .field = in<&Config::recompute, &Recompute::budget>,
                   .words = "Bytes of tensors that a rank may take.",
                   .range = at_least(0),
                   .counts = {"recompute.mode", {"budget"}},
                   .bytes = true},
                  {.name = "offload",
                   .field = in<&Config::recompute, &Recompute::offload>,
                   .words = "What is held may lie in the host's memory meanwhile; of GPUs.",
                   .counts = {"recompute.mode"}}});
}

Section gradient_merge_section() {
  return section("gradient_merge", "One update for several steps.",
                 {{.name = "steps",
                   .field = in<&Config::gradient_merge, &GradientMerge::steps>,
                   .words = "Steps to an update.",
                   .range = count(1)},
                  {.name = "average",
                   .field = in<&Config::gradient_merge, &GradientMerge::average>,
                   .words = "The mean of their gradients; false: the sum.",
                   .counts = {"gradient_merge.steps"}}});
}

Section amp_section() {
  const Condition fp16{"amp.dtype", {"fp16"}};
  return section("amp", "Mixed precision, and the scaling of the loss that 16 bits need.",
                 {{.name = "dtype",
                   .field = in<&Config::amp, &Amp::dtype>,
                   .words = "The numbers in which forwards are computed.",
                   .choices = {{"off", "those of the weights"}, {"bf16", ""}, {"fp16", ""}}},
                  {.name = "init_scale",
                   .field = in<&Config::amp, &Amp::init_scale>,
                   .words = "What the loss is multiplied with at first.",
                   .range = scale_range(),
                   .counts = fp16},
                  {.name = "growth",
                   .field = in<&Config::amp, &Amp::growth>,
                   .words = "What the scale is multiplied with after growth_interval good updates.",
                   .range = at_least(1),
                   .counts = fp16},
                  {.name = "growth_interval",
                   .field = in<&Config::amp, &Amp::growth_interval>,
                   .words = "Good updates in a row until the scale grows.",
                   .range = count(1),
                   .counts = fp16},
                  {.name = "backoff",
                   .field = in<&Config::amp, &Amp::backoff>,
                   .words = "What the scale is multiplied with after backoff_interval overflows.",
                   .range = above(0, 1),
                   .counts = fp16},
                  {.name = "backoff_interval",
                   .field = in<&Config::amp, &Amp::backoff_interval>,
                   .words = "Overflows in a row until the scale falls.",
                   .range = count(1),
                   .counts = fp16}});
}

Section data_parallel_section() {
  return section("data_parallel", "Several pipelines, each with its part of the mini-batch.",
                 {{.name = "replicas",
                   .field = in<&Config::data_parallel, &DataParallel::replicas>,
                   .words = "How many; ranks x replicas are processes.",
                   .range = count(1)},
                  {.name = "shard_optimizer",
                   .field = in<&Config::data_parallel, &DataParallel::shard_optimizer>,
                   .words = "Each replica keeps the optimizer's state of its share alone.",
                   .counts = {"data_parallel.replicas"}}});
}

Section auto_micro_batch_section() {
  return section(
      "auto_micro_batch",
      "The model's graph, copied for parts of a batch that run beside each other; "
      "without a pipeline.",
      {{.name = "num",
        .field = in<&Config::auto_micro_batch, &AutoMicroBatch::num>,
        .words = "Copies; \"auto\": what measures fastest.",
        .range = count(0),
        .zero = "auto"},
       {.name = "lanes",
        .field = in<&Config::auto_micro_batch, &AutoMicroBatch::lanes>,
        .words = "Copies that run at a time; 0: all that the cores allow.",
        .range = count(0),
        .counts = {"auto_micro_batch.num"}},
       {.name = "batch",
        .field = in<&Config::auto_micro_batch, &AutoMicroBatch::batch>,
        .words = "What data.batch is the size of.",
        .choices = {{"whole", "the whole, which is split"}, {"micro", "each copy's own batch"}},
        .counts = {"auto_micro_batch.num"}}});
}

}  // namespace pipewright::config
