#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "pipewright/config/schema.h"

namespace pipewright::config {

// The sections of schema(), each a list of lines such as
//
//     {.name = "ranks", .field = in<&Config::pipeline, &Pipeline::ranks>, .words = "...", ...}

/// A key's place in Config: the part, and the member of the part.
template <auto PartOfConfig, auto Member>
Field in(Config& config) {
  return &(config.*PartOfConfig.*Member);
}

/// One line of the table.
struct Line {
  const char* name;
  Field (*field)(Config& config);
  std::string words;
  Range range = {};
  std::vector<Choice> choices = {};
  Condition counts = {};
  bool required = false;
  bool bytes = false;
  std::size_t length = 0;
  const char* zero = "";
  std::string (*misformed)(const std::string& text) = nullptr;
};

/// Adds what Config knows of the lines: types and defaults.
Section section(const char* name, const char* words, std::vector<Line> lines);

template <typename Named>
std::vector<Choice> names_of(const std::vector<Named>& all) {
  std::vector<Choice> choices;
  for (const Named& one : all) choices.push_back({one.name, one.words});
  return choices;
}

Section general_section();
Section model_section(const Known& known);
Section data_section(const Known& known);
Section train_section(const Known& known);
Section pipeline_section(const Known& known);
Section recompute_section();
Section gradient_merge_section();
Section amp_section();
Section data_parallel_section();
Section auto_micro_batch_section();
Section checkpoint_section();
Section log_section();

}  // namespace pipewright::config
