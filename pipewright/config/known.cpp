#include "pipewright/config/known.h"

#include <algorithm>

namespace pipewright::config {
namespace {

template <typename Named>
const Named* find_named(const std::vector<Named>& all, const std::string& name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Named& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

const Component* find(const std::vector<Component>& components, const std::string& name) {
  return find_named(components, name);
}

const Schedule* find(const std::vector<Schedule>& schedules, const std::string& name) {
  return find_named(schedules, name);
}

}  // namespace pipewright::config
