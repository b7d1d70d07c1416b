#include "pipewright/config/sections.h"

namespace pipewright::config {
namespace {

/// Steps, samples: of these there may be many.
Range step_count(double least) {
  constexpr double kMostSteps = 1e12;
  return {least, kMostSteps, false, false, true};
}

std::vector<Choice> optimizers() {
  return {{"sgd", "plain, or with momentum"},
          {"adam", "weight decay as part of the gradient"},
          {"adamw", "weight decay apart from the gradient"},
          {"rmsprop", ""},
          {"adagrad", ""}};
}

std::vector<Choice> rate_schedules() {
  return {{"constant", ""},
          {"cosine", "down to the floor along a half cosine"},
          {"linear", "down to the floor along a line"},
          {"inverse_sqrt", "with the root of the updates since warm-up"},
          {"step", "times schedule_factor after every schedule_every updates"}};
}

}  // namespace

Section general_section() {
  // The only key that is not in a part of Config.
  const auto seed = [](Config& config) -> Field { return &config.seed; };
  return section("", "Above all sections.",
                 {{.name = "seed",
                   .field = seed,
                   .words = "Where the random numbers of weights, dropout and data start: the same "
                            "seed gives the same run.",
                   .range = at_least(0)}});
}

Section model_section(const Known& known) {
  return section("model",
                 "What is trained: a model by name with its own parameters, or a TorchScript file.",
                 {{.name = "name",
                   .field = in<&Config::model, &Model::name>,
                   .words = "A model of the zoo; its own parameters are keys of this section "
                            "(`pipewright models` lists them).",
                   .choices = names_of(known.models)},
                  {.name = "file",
                   .field = in<&Config::model, &Model::file>,
                   .words = "A TorchScript file (.pt) instead of a name."},
                  {.name = "weights",
                   .field = in<&Config::model, &Model::weights>,
                   .words = "Weights to start from: a .safetensors file, or a folder as Hugging "
                            "Face's tools write it; gpt and bert take their names too.",
                   .counts = {"model.name"}},
                  {.name = "export_to",
                   .field = in<&Config::model, &Model::export_to>,
                   .words = "A new folder for the trained weights; of gpt and bert as Hugging "
                            "Face's tools read them.",
                   .counts = {"model.name"}}});
}

Section data_section(const Known& known) {
  return section(
      "data", "What it is trained on; a source may have parameters of its own.",
      {{.name = "name",
        .field = in<&Config::data, &Data::name>,
        .words = "The data source.",
        .choices = names_of(known.data),
        .required = true},
       {.name = "path",
        .field = in<&Config::data, &Data::path>,
        .words = "File or folder, for sources that read one."},
       {.name = "validation_path",
        .field = in<&Config::data, &Data::validation_path>,
        .words = "File or folder for validation; empty: the source sets a part of its own aside.",
        .counts = {"train.validate_every"}},
       {.name = "batch",
        .field = in<&Config::data, &Data::batch>,
        .words = "Samples of a whole mini-batch, over all replicas and micro-batches.",
        .range = step_count(1),
        .required = true},
       {.name = "shuffle",
        .field = in<&Config::data, &Data::shuffle>,
        .words = "A new order of the samples in every epoch."},
       {.name = "workers",
        .field = in<&Config::data, &Data::workers>,
        .words = "Threads that read ahead; 0: the training thread reads.",
        .range = count(0)},
       {.name = "prefetch",
        .field = in<&Config::data, &Data::prefetch>,
        .words = "Mini-batches that are held ready.",
        .range = count(1)}});
}

Section train_section(const Known& known) {
  return section(
      "train", "How long, with which optimizer, and how it is judged on the way.",
      {{.name = "steps",
        .field = in<&Config::train, &Train::steps>,
        .words = "Mini-batches to train on; 0: epochs counts.",
        .range = step_count(0)},
       {.name = "epochs",
        .field = in<&Config::train, &Train::epochs>,
        .words = "Passes over the data; 0: steps counts.",
        .range = step_count(0)},
       {.name = "optimizer",
        .field = in<&Config::train, &Train::optimizer>,
        .words = "What turns gradients into updates.",
        .choices = optimizers()},
       {.name = "lr",
        .field = in<&Config::train, &Train::lr>,
        .words = "The learning rate after warm-up.",
        .range = at_least(0)},
       {.name = "warmup",
        .field = in<&Config::train, &Train::warmup>,
        .words = "Updates in which the rate rises to lr.",
        .range = step_count(0)},
       {.name = "schedule",
        .field = in<&Config::train, &Train::schedule>,
        .words = "What the learning rate does after warm-up.",
        .choices = rate_schedules()},
       {.name = "schedule_floor",
        .field = in<&Config::train, &Train::schedule_floor>,
        .words = "Where the rate ends, as a share of lr.",
        .range = at_least(0, 1),
        .counts = {"train.schedule", {"cosine", "linear"}}},
       {.name = "schedule_every",
        .field = in<&Config::train, &Train::schedule_every>,
        .words = "Updates between two steps of the rate.",
        .range = step_count(0),
        .counts = {"train.schedule", {"step"}}},
       {.name = "schedule_factor",
        .field = in<&Config::train, &Train::schedule_factor>,
        .words = "What the rate is multiplied with at each step of it.",
        .range = above(0, 1),
        .counts = {"train.schedule", {"step"}}},
       {.name = "momentum",
        .field = in<&Config::train, &Train::momentum>,
        .words = "How much of the last update goes into the next.",
        .range = from_to_below(0, 1),
        .counts = {"train.optimizer", {"sgd", "rmsprop"}}},
       {.name = "betas",
        .field = in<&Config::train, &Train::betas>,
        .words = "How much of the old means of gradients and of their squares is kept.",
        .range = from_to_below(0, 1),
        .counts = {"train.optimizer", {"adam", "adamw"}},
        .length = 2},
       {.name = "epsilon",
        .field = in<&Config::train, &Train::epsilon>,
        .words = "Added to the divisor, so that it is never 0.",
        .range = above(0),
        .counts = {"train.optimizer", {"adam", "adamw", "rmsprop", "adagrad"}}},
       {.name = "weight_decay",
        .field = in<&Config::train, &Train::weight_decay>,
        .words = "How strongly weights are drawn to 0.",
        .range = at_least(0)},
       {.name = "clip_norm",
        .field = in<&Config::train, &Train::clip_norm>,
        .words = "The longest gradient, by the norm over all parameters; 0: any.",
        .range = at_least(0)},
       {.name = "loss",
        .field = in<&Config::train, &Train::loss>,
        .words = "What is made small; empty: what the model is made for.",
        .choices = known.losses},
       {.name = "check_finite",
        .field = in<&Config::train, &Train::check_finite>,
        .words = "Stop at the first layer that makes a nan or an infinity and name it; slow."},
       {.name = "validate_every",
        .field = in<&Config::train, &Train::validate_every>,
        .words = "Steps between two validations; 0: none.",
        .range = step_count(0)},
       {.name = "validate_batches",
        .field = in<&Config::train, &Train::validate_batches>,
        .words = "Mini-batches of a validation; 0: all there are.",
        .range = step_count(0),
        .counts = {"train.validate_every"}},
       {.name = "early_stop",
        .field = in<&Config::train, &Train::early_stop>,
        .words = "End after so many validations in a row without a better loss; 0: never.",
        .range = step_count(0),
        .counts = {"train.validate_every"}},
       {.name = "early_stop_margin",
        .field = in<&Config::train, &Train::early_stop_margin>,
        .words = "By how much a loss must be lower to count as better.",
        .range = at_least(0),
        .counts = {"train.early_stop"}}});
}

Section checkpoint_section() {
  return section(
      "checkpoint", "What of a run is kept to go on from.",
      {{.name = "every",
        .field = in<&Config::checkpoint, &Checkpoint::every>,
        .words = "Steps between two checkpoints; 0: one at the end alone.",
        .range = step_count(0)},
       {.name = "keep",
        .field = in<&Config::checkpoint, &Checkpoint::keep>,
        .words = "The newest so many stay; 0: all.",
        .range = count(0),
        .counts = {"checkpoint.every"}},
       {.name = "keep_best",
        .field = in<&Config::checkpoint, &Checkpoint::keep_best>,
        .words = "The one with the best validation loss stays beside them.",
        .counts = {"train.validate_every"}},
       {.name = "dir",
        .field = in<&Config::checkpoint, &Checkpoint::dir>,
        .words = "Folder of the checkpoints; empty: checkpoints/ in the run's folder."}});
}

Section log_section() {
  return section("log", "What a run leaves to look at.",
                 {{.name = "dir",
                   .field = in<&Config::log, &Log::dir>,
                   .words = "The run's folder; empty: runs/ and the name of the config's file."},
                  {.name = "every",
                   .field = in<&Config::log, &Log::every>,
                   .words = "Steps from one line of the log to the next.",
                   .range = step_count(1)},
                  {.name = "tensorboard",
                   .field = in<&Config::log, &Log::tensorboard>,
                   .words = "Event files for TensorBoard too."},
                  {.name = "trace",
                   .field = in<&Config::log, &Log::trace>,
                   .words = "The measured timeline of a step too."}});
}

}  // namespace pipewright::config
