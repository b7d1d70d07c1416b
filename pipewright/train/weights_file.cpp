#include "pipewright/train/weights_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/manifest.h"
#include "pipewright/checkpoint/safetensors.h"
#include "pipewright/checkpoint/storage.h"
#include "pipewright/train/file_groups.h"
#include "pipewright/train/tensor_bytes.h"

namespace pipewright {
namespace {

using nlohmann::json;

const SafetensorsMetadata& metadata() {
  static const SafetensorsMetadata kValue = {{"format", "pt"}};
  return kValue;
}

bool is_one_file(const std::string& path) { return path.ends_with(".safetensors"); }

/// A layer's weights as a file is to hold them; `held` outlives the views.
std::vector<TensorView> weights_of(const LayerSnapshot& layer, const NamesInFile& names,
                                   std::vector<torch::Tensor>* held) {
  if (!names) return views_of(layer, Part::kWeights, held);
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : layer.weights) {
    for (auto& [part_name, part] : parts_of(names(name), tensor)) {
      held->push_back(part);
      views.push_back(view_of(part_name, part));
    }
  }
  return views;
}

void write_file(const std::string& path, const Snapshot& snapshot, const NamesInFile& names) {
  std::vector<TensorView> views;
  std::vector<torch::Tensor> held;
  for (const LayerSnapshot& layer : snapshot.layers) {
    for (TensorView& view : weights_of(layer, names, &held)) views.push_back(std::move(view));
  }
  const std::string beside = path + ".writing";
  std::error_code ignored;
  std::filesystem::remove(beside, ignored);  // of a writer that was killed
  write_safetensors(beside, views, metadata());
  rename_folder(beside, path);
  const auto parent = std::filesystem::path(path).parent_path();
  sync_folder(parent.empty() ? "." : parent.string());
}

json write_own(const std::string& folder, const Snapshot& snapshot, const std::vector<json>& offers,
               int rank, const NamesInFile& names) {
  json records = json::array();
  const auto groups = file_groups(Part::kWeights, offers);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].writer != rank) continue;
    FileRecord record;
    record.group = static_cast<int>(i);
    record.num_groups = static_cast<int>(groups.size());
    std::vector<torch::Tensor> held;
    const auto views = weights_of(snapshot.layers[groups[i].layer], names, &held);
    for (const TensorView& view : views) record.tensors.push_back(view.name);
    WrittenFile file = write_safetensors(in_folder(folder, record.file()), views, metadata());
    record.bytes = file.bytes;
    record.tensor_bytes = file.tensor_bytes;
    record.sha256 = std::move(file.sha256);
    records.push_back(to_json(record));
  }
  return records;
}

void finish_folder(const std::string& folder, const std::string& path,
                   const std::vector<json>& all) {
  std::vector<FileRecord> records;
  for (const json& some : all) {
    for (const json& record : some) records.push_back(parse_file_record(record));
  }
  write_text(in_folder(folder, index_file(Part::kWeights)),
             to_text(make_index(Part::kWeights, records)));
  sync_folder(folder);
  rename_folder(folder, path);
}

void write_folder(const std::string& path, const Snapshot& snapshot, Exchange* exchange,
                  const NamesInFile& names) {
  const std::string folder = path + ".writing";
  const auto offers = exchange->together([&] {
    if (exchange->is_first()) {
      if (is_there(path)) {
        throw InvalidArgument("checkpoint",
                              fmt::format("'{}' is there already; name a new folder", path));
      }
      remove_folder(folder);
      make_folder(folder);
    }
    return offer_of(snapshot);
  });
  const auto all = exchange->together(
      [&] { return write_own(folder, snapshot, offers, exchange->rank(), names); },
      longest_write_seconds(offers));
  exchange->together([&] {
    if (exchange->is_first()) finish_folder(folder, path, all);
    return json();
  });
}

}  // namespace

void check_weights_path(const std::string& path, int num_processes) {
  if (num_processes == 1 || !is_one_file(path)) return;
  throw InvalidArgument("checkpoint",
                        fmt::format("'{}' is one file, and {} processes hold the weights; name a "
                                    "folder, in which each writes its own files",
                                    path, num_processes));
}

void write_weights(const std::string& path, const Snapshot& snapshot, Exchange* exchange,
                   const NamesInFile& names) {
  if (is_one_file(path)) return write_file(path, snapshot, names);
  write_folder(path, snapshot, exchange, names);
}

}  // namespace pipewright
