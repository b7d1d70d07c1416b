#pragma once

#include <string>
#include <vector>

#include "pipewright/config/option.h"

namespace pipewright::config {

/// A model or a data source that a config may name, with the keys it adds to its section.
struct Component {
  std::string name;
  std::string words = {};               // one sentence
  std::vector<Option> parameters = {};  // beside the section's own keys; other names than those
  std::string goes_with = {};           // of a model: the data source that `init` writes beside it
};

/// What a config needs to know of a pipeline schedule.
struct Schedule {
  std::string name;
  std::string words = {};
  int default_chunks = 1;
  int least_chunks = 1;
  int most_chunks = 1;
  bool asynchronous = false;  // its updates are delayed
  int update_distance = 0;    // an update needs 1 + so many x (ranks - 1) micro-batches
};

/// The names that the program at hand has. config/ knows neither models nor schedules; who calls it
/// does, and so their names are checked with all the rest, each with its line. What is left
/// empty is not checked: then any name is taken, and any parameter, as the type it is written in.
struct Known {
  std::vector<Component> models = {};
  std::vector<Component> data = {};
  std::vector<Schedule> schedules = {};  // that train
  std::vector<Choice> losses = {};
};

/// Null where there is none of the name.
const Component* find(const std::vector<Component>& components, const std::string& name);
const Schedule* find(const std::vector<Schedule>& schedules, const std::string& name);

}  // namespace pipewright::config
