#include "pipewright/catalog/clicks.h"

namespace pipewright::catalog {
namespace {

using config::at_least;
using config::Component;
using config::count;
using config::Option;

Component click_model(const char* name, const char* words, const std::vector<Option>& more = {}) {
  std::vector<Option> parameters = {
      config::integer("dim", 8, count(1), "Of an embedding."),
      config::integer("width", 64, count(1), "Of a hidden layer."),
      config::integer("depth", 2, count(1), "Hidden layers."),
      config::number("dropout", 0, config::from_to_below(0, 1), "Share left out."),
      config::flag("sparse", false,
                   "Gradients of embeddings are sparse: for sgd and adagrad without decay.")};
  parameters.insert(parameters.end(), more.begin(), more.end());
  return {name, words, parameters, "clicks"};
}

}  // namespace

std::vector<Component> click_models() {
  return {click_model("wide_deep", "Wide & Deep: will it be clicked?",
                      {config::integer("crosses", 0, at_least(0),
                                       "Buckets for pairs of neighbouring fields; 0: none.")}),
          click_model("deepfm", "DeepFM, a factorization machine beside hidden layers: likewise."),
          click_model("dlrm", "DLRM, products of embeddings and numbers: likewise."),
          click_model("din", "DIN, attention to what the user did before: likewise.",
                      {config::integer("history", 2, count(1),
                                       "The last so many fields; the one before is shown.")})};
}

Component clicks() {
  return {"clicks",
          "Clicks, a file in Criteo's form; without a path, made ones with planted interactions.",
          {config::integer("numeric", 13, count(1), "Columns of numbers."),
           config::integer("fields", 26, count(2), "Columns of categories."),
           config::integer("buckets", 100000, count(2), "Of a file: ids a field is hashed to."),
           config::integer("values", 20, count(2), "Of made fields: even."),
           config::integer("interactions", 3, at_least(0), "Of made ones: pairs of fields."),
           config::integer("rows", 20000, count(1), "Made ones."),
           config::integer("validation_rows", 2000, count(1), "Made ones to validate with.")}};
}

}  // namespace pipewright::catalog
