#include "pipewright/catalog/catalog.h"

#include "pipewright/catalog/clicks.h"
#include "pipewright/catalog/lists.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright::catalog {

config::Known known() {
  config::Known known;
  known.models = models();
  known.data = data_sources();
  for (config::Component& model : click_models()) known.models.push_back(std::move(model));
  known.data.push_back(clicks());
  for (const ScheduleInfo& info : all_schedules()) {
    if (info.forward_only) continue;
    known.schedules.push_back({std::string(info.name), std::string(info.summary),
                               info.default_chunks, info.least_chunks, info.most_chunks,
                               info.asynchronous, least_between_updates(info.name, 2) - 1});
  }
  known.losses = {{"cross_entropy", "mean over targets that are not ignored"},
                  {"mean_squared_error", "mean over rows"},
                  {"binary_cross_entropy", "of clicks: mean over rows"}};
  return known;
}

}  // namespace pipewright::catalog
