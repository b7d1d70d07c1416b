// Trains a small GPT on made text over a pipeline: checks the pipeline's gradients first, then
// trains, says how fast and how busy the ranks were, writes some text, and draws the last step.
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "gradient_check.h"
#include "options.h"
#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/data/text.h"
#include "pipewright/models/gpt.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/train/trainer.h"
#include "progress.h"
#include "report.h"

using namespace pipewright;

namespace {

constexpr double kMostDifference = 1e-10;  // of gradients in float64
constexpr int kWarmUpSteps = 20;
constexpr double kLeastLearningRate = 0.1;  // of its peak, at the end
constexpr int kUntimedSteps = 5;            // the first steps fill caches
constexpr double kClipNorm = 1;
constexpr double kTemperature = 0.5;
constexpr int kSentences = 8;  // to write
constexpr std::size_t kMostCharacters = 400;

Sequence make_model(const Options& o, const CharVocabulary& vocabulary) {
  torch::manual_seed(o.seed);
  return make_gpt({.layers = o.layers,
                   .dim = o.dim,
                   .heads = o.heads,
                   .seq = o.seq,
                   .vocab = vocabulary.size()});
}

Strategy make_strategy(const Options& o) {
  Strategy strategy;
  strategy.ranks = o.ranks;
  strategy.micro_batches = o.micro_batches;
  strategy.schedule = o.schedule;
  strategy.learning_rate =
      warm_up(kWarmUpSteps, cosine_decay(std::max(1, o.steps - kWarmUpSteps), kLeastLearningRate));
  strategy.clip_norm = kClipNorm;
  strategy.seed = o.seed;
  if (o.launched) strategy.transport = "gloo";
  return strategy;
}

OptimizerFactory adamw(double learning_rate) {
  return [learning_rate](const Parameters& parameters) {
    return std::make_unique<torch::optim::AdamW>(
        parameters,
        torch::optim::AdamWOptions(learning_rate).betas({0.9, 0.95}).weight_decay(0.01));
  };
}

Batch to_batch(TokenBatch tokens) {
  return {.inputs = {std::move(tokens.inputs)}, .targets = {std::move(tokens.targets)}};
}

/// Mean loss of guessing each character by how often it occurs, whatever is before it.
double loss_without_context(const TextSampler& sampler) {
  const auto counts = torch::bincount(sampler.batch(0).targets.flatten()).to(torch::kFloat64);
  const auto shares = counts / counts.sum();
  return -torch::xlogy(shares, shares).sum().item<double>();
}

std::int64_t num_parameters(const Sequence& model) {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : model.named_parameters()) count += parameter.numel();
  return count;
}

/// The layers of each stage: `embed - block1`.
std::vector<std::string> stages_in_words(const Trainer& trainer) {
  std::vector<std::string> words;
  std::size_t first = 0;
  for (const int size : trainer.sizes()) {
    const std::size_t last = first + static_cast<std::size_t>(size) - 1;
    const auto& layers = trainer.model().layers();
    words.push_back(first == last ? layers[first].name
                                  : fmt::format("{} - {}", layers[first].name, layers[last].name));
    first = last + 1;
  }
  return words;
}

/// Of several processes, those of its own stages.
double check_gradients(const Options& o, const CharVocabulary& vocabulary) {
  const Batch batch = to_batch(TextSampler(o.micro_batches, o.seq, o.seed).batch(0));
  const double difference = gradient_difference(make_model(o, vocabulary), batch, make_strategy(o));
  fmt::print(
      "gradients against plain single-device training, in float64: largest relative difference "
      "{:.1e}\n",
      difference);
  std::fflush(stdout);
  return difference;
}

/// The step to go on with.
int resume(const Options& o, Trainer& trainer) {
  if (!o.resume) return 0;
  const Resumed resumed = trainer.resume(o.checkpoints);
  for (const RefusedCheckpoint& refused : resumed.refused)
    fmt::print("not used: {}: {}\n", refused.path, refused.reason);
  if (resumed) {
    fmt::print("goes on from {}\n", resumed.path);
  } else {
    fmt::print("no checkpoint in {} yet: begins\n", o.checkpoints);
  }
  return static_cast<int>(resumed.step);
}

void save_now_and_then(const Options& o, Trainer& trainer) {
  if (o.checkpoints.empty()) return;
  if (trainer.num_steps() % o.save_every == 0 || trainer.num_steps() == o.steps)
    trainer.save(o.checkpoints, {.keep = 2});
}

/// Trains, and returns what the summary needs. `last_step` is its last timeline.
Summary train(const Options& o, int first, Trainer& trainer, const TextSampler& sampler,
              Timeline* last_step) {
  Summary summary;
  summary.measured = MeasuredCosts(static_cast<int>(trainer.sizes().size()));
  summary.layers = stages_in_words(trainer);
  Progress progress(first, o.steps, static_cast<double>(o.batch));
  for (int step = first; step < o.steps; ++step) {
    StepResult result = trainer.step(to_batch(sampler.batch(step)));
    save_now_and_then(o, trainer);
    if (step >= first + kUntimedSteps || o.steps <= first + kUntimedSteps)
      summary.measured.add(result.timeline);
    progress.show(result.loss, pipeline_bubble(result.timeline));
    if (step + 1 < o.steps) continue;
    summary.program = lower_step(lower_sends(make_schedule(
        {.name = o.schedule, .ranks = o.ranks, .micro_batches = result.micro_batches})));
    summary.peak_bytes = result.peak_bytes;
    *last_step = std::move(result.timeline);
  }
  trainer.wait_for_save();
  summary.samples_per_second = progress.samples_per_second();
  summary.tokens_per_second = summary.samples_per_second * static_cast<double>(o.seq);
  return summary;
}

/// Sentences that the model writes, a character at a time; in several processes the same ones.
std::string write_text(Trainer& trainer, const CharVocabulary& vocabulary, const Options& o) {
  torch::manual_seed(o.seed);
  std::vector<std::int64_t> tokens = vocabulary.encode("\n");  // what stands before a sentence
  std::string text;
  const auto num_sentences = [&] { return std::count(text.begin(), text.end(), '\n'); };
  while (num_sentences() < kSentences && text.size() < kMostCharacters) {
    const auto all = torch::tensor(tokens);
    const auto seen = all.slice(0, std::max<std::int64_t>(0, all.size(0) - o.seq));
    const auto logits = trainer.predict({seen.unsqueeze(0)})[0][0][-1];
    const auto shares = torch::softmax(logits / kTemperature, -1);
    tokens.push_back(torch::multinomial(shares, 1).item<std::int64_t>());
    text += vocabulary.decode({tokens.back()});
  }
  return text;
}

int complain(int status, std::string_view message) {
  fmt::print(stderr, "language_model: {}\n", message);
  return status;
}

int run(const Options& o) {
  const TextSampler sampler(o.batch, o.seq, o.seed);
  const Sequence model = make_model(o, sampler.vocabulary());
  Trainer trainer(model, cross_entropy(), adamw(o.learning_rate), make_strategy(o));
  if (o.speaks) write_file(o.html, "", "--html");  // rather refused now than after the training

  fmt::print(
      "a GPT of {} blocks, width {}, {:.2f} million parameters, over {} {}: {}, {} "
      "micro-batches\n",
      o.layers, o.dim, 1e-6 * static_cast<double>(num_parameters(model)), o.ranks,
      o.launched ? "processes" : "threads", o.schedule, o.micro_batches);
  // Written this way round, nan fails too.
  if (!(check_gradients(o, sampler.vocabulary()) <= kMostDifference)) {
    return complain(1, fmt::format("the gradients differ by more than {:.0e}", kMostDifference));
  }

  fmt::print(
      "{} steps of {} x {} characters; guessing by their frequency alone is a loss of {:.2f}\n",
      o.steps, o.batch, o.seq, loss_without_context(sampler));
  const int first = resume(o, trainer);
  if (first >= o.steps) {
    fmt::print("nothing is left to do: {} steps were done; give more --steps\n", first);
    return 0;
  }
  Timeline last_step;
  const Summary summary = train(o, first, trainer, sampler, &last_step);
  fmt::print("\n");
  print_summary(summary);
  fmt::print("\nIt now writes:\n\n{}\n", write_text(trainer, sampler.vocabulary(), o));
  if (!o.speaks) return 0;
  write_page(o.html, summary.program, last_step);
  fmt::print("The last step, predicted and measured, as a page: {}\n", o.html);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<Options> options = parse_options(argc, argv);
    return options ? run(*options) : 0;
  } catch (const InvalidArgument& error) {
    return complain(2, error.what());
  } catch (const std::exception& error) {
    return complain(1, error.what());
  }
}
