#pragma once

#include <string>
#include <vector>

#include "pipewright/config/known.h"
#include "pipewright/config/problem.h"
#include "pipewright/config/read.h"

namespace pipewright::config {

/// Two models, two data sources, schedules with and without chunks: as a program would have them.
inline Known sample_known() {
  Option widths;
  widths.name = "widths";
  widths.type = Type::kIntegers;
  widths.fallback = std::vector<std::int64_t>{8, 8};
  widths.range = count(1);
  widths.words = "Outputs of the layers.";
  Known known;
  known.models = {
      {"gpt",
       "A decoder-only transformer.",
       {integer("layers", 4, count(1), "Blocks."),
        integer("vocab", 0, count(0), "Tokens; 0: those of the data."),
        number("dropout", 0, from_to_below(0, 1), "Share of activations set to 0."),
        flag("tied", true, "The head uses the embedding's weight."),
        choice("norm", "before", {{"before", ""}, {"after", ""}}, "Where blocks normalise.")},
       "text"},
      {"mlp", "Layers one after the other.", {widths}, "arrays"}};
  known.data = {{"text", "Made text.", {integer("seq", 64, count(1), "Tokens of a sample.")}},
                {"arrays", "Files of arrays.", {bytes("cache", 0, count(0), "Held in memory.")}}};
  known.schedules = {{"gpipe", "All forwards, then all backwards.", 1, 1, 64},
                     {"1f1b", "One forward, one backward.", 1, 1, 1},
                     {"interleaved-1f1b", "Several chunks a rank.", 2, 1, 64},
                     {"pipedream", "1f1b that goes on.", 1, 1, 1, true},
                     {"pipedream-2bw", "The same with two versions.", 1, 1, 1, true, 1},
                     {"eager-pipedream", "pipedream with a reserve.", 1, 1, 1, true}};
  known.losses = {{"cross_entropy"}, {"mean_squared_error"}};
  return known;
}

/// The least that a config must say, in seven lines; what is added begins in line 8, in [train].
inline std::string least_config() {
  return "[model]\n"
         "name = \"gpt\"\n"
         "[data]\n"
         "name = \"text\"\n"
         "batch = 32\n"
         "[train]\n"
         "steps = 100\n";
}

inline Config read_sample(const std::string& added,
                          const std::vector<std::string>& overrides = {}) {
  return read_text(least_config() + added, "run.toml", overrides, sample_known());
}

/// What a text is refused for; empty where it is accepted.
inline std::vector<std::string> problems_of(const std::string& text,
                                            const std::vector<std::string>& overrides = {},
                                            const Known& known = sample_known()) {
  try {
    read_text(text, "run.toml", overrides, known);
  } catch (const ConfigError& error) {
    return error.problems();
  }
  return {};
}

/// The same of the least config with something added, which must be refused for one thing.
inline std::string problem_of(const std::string& added,
                              const std::vector<std::string>& overrides = {}) {
  const std::vector<std::string> problems = problems_of(least_config() + added, overrides);
  if (problems.empty()) return "accepted";
  return problems.size() == 1 ? problems[0] : std::to_string(problems.size()) + " problems";
}

}  // namespace pipewright::config
