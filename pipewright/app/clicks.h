#pragma once

#include "pipewright/app/make.h"

namespace pipewright::app {

// Models of clicks and their data, as make.h has them for the others.

DataSet open_clicks(const config::Config& config);

bool is_click_model(const std::string& name);
/// Whether the loss is that of clicks: asked for, or the model's own.
bool is_of_clicks(const config::Config& config);
Sequence make_click_model(const config::Config& config, const DataSet& data);

}  // namespace pipewright::app
