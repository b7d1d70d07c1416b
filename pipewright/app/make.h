#pragma once

#include <functional>
#include <memory>
#include <string>

#include "pipewright/config/config.h"
#include "pipewright/data/source.h"
#include "pipewright/nn/loss.h"
#include "pipewright/nn/sequence.h"

namespace pipewright::app {

/// The data of a run.
struct DataSet {
  std::shared_ptr<const DataSource> training;
  std::shared_ptr<const DataSource> validation;  // null: none is kept apart
  std::int64_t vocabulary = 0;                   // tokens of what is predicted; 0: it has none
  std::int64_t source_vocabulary = 0;            // of pairs: tokens of the sources
  std::int64_t pad = 0;                          // of pairs: the token that fills sources up
  std::int64_t channels = 0;                     // of pictures; 0: it has none
  std::int64_t image = 0;                        // of pictures: the smaller of height and width
  std::int64_t classes = 0;                      // of pictures or pixels; 0: it does not tell
  std::int64_t click_numbers = 0;                // of clicks
  std::int64_t click_fields = 0;                 // of clicks; 0: it has none
  std::int64_t click_buckets = 0;                // of clicks: ids a field
  std::string words;                             // for people
};

// What catalog/ names, as the config says. All throw InvalidArgument where model and data do not
// fit each other, a file is missing or damaged.

DataSet open_data(const config::Config& config);

struct MadeModel {
  Sequence layers;
  /// Of a TorchScript file: writes it with the weights as they are. Empty for other models.
  std::function<void(const std::string& path)> save_script = {};
};

/// By its name: each layer is made by the process that runs it, with weights that depend on the
/// config's seed and its name. Or from a TorchScript file, cut into layers; what mixes samples is
/// refused where there are several micro-batches, but for batch norms.
MadeModel make_model(const config::Config& config, const DataSet& data);
Loss make_loss(const config::Config& config);

}  // namespace pipewright::app
