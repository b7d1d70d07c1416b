#include "pipewright/train/save_job.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "pipewright/checkpoint/directory.h"
#include "pipewright/checkpoint/storage.h"
#include "pipewright/checkpoint/writer.h"
#include "pipewright/train/file_groups.h"

namespace pipewright {
namespace {

using nlohmann::json;

json write_own(const CheckpointWriter& writer, const SaveJob& job, const std::vector<json>& offers,
               int rank) {
  json records = json::array();
  for (const Part part : kAllParts) {
    const auto groups = file_groups(part, offers);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].writer != rank) continue;
      std::vector<torch::Tensor> held;
      const auto views = views_of(job.snapshot.layers[groups[i].layer], part, &held);
      records.push_back(to_json(
          writer.write_group(part, static_cast<int>(i), static_cast<int>(groups.size()), views)));
    }
  }
  return records;
}

/// In an order that does not depend on who wrote what.
std::vector<FileRecord> parse_records(const std::vector<json>& all) {
  std::vector<FileRecord> records;
  for (const json& some : all) {
    for (const json& record : some) records.push_back(parse_file_record(record));
  }
  std::sort(records.begin(), records.end(), [](const FileRecord& a, const FileRecord& b) {
    return std::tie(a.part, a.group) < std::tie(b.part, b.group);
  });
  return records;
}

/// The run's state, with what only all processes together know.
json whole_state(const SaveJob& job, const std::vector<json>& offers) {
  std::set<std::string> types;
  for (const json& one : offers) {
    for (const json& type : one.at("types")) types.insert(type.get<std::string>());
  }
  json state = job.snapshot.state;
  state["pipewright"]["optimizer_states"] = types;
  return state;
}

std::int64_t write_all(const SaveJob& job, const CheckpointWriter& writer, Exchange* exchange) {
  const auto offers = exchange->together([&] {
    if (job.failure) std::rethrow_exception(job.failure);
    if (exchange->is_first()) {
      make_folder(job.dir);
      if (job.tidy) tidy_checkpoints(job.dir);
      writer.begin();
    }
    return offer_of(job.snapshot);
  });
  const auto all =
      exchange->together([&] { return write_own(writer, job, offers, exchange->rank()); },
                         longest_write_seconds(offers));
  exchange->together([&] {
    if (exchange->is_first()) {
      writer.commit(parse_records(all), whole_state(job, offers));
      if (job.keep > 0) prune_checkpoints(job.dir, job.keep);
    }
    return json();
  });
  std::int64_t bytes = 0;
  for (const FileRecord& record : parse_records({all[static_cast<std::size_t>(exchange->rank())]}))
    bytes += record.bytes;
  return bytes;
}

}  // namespace

std::int64_t write_checkpoint(const SaveJob& job, Exchange* exchange) {
  const CheckpointWriter writer(job.dir, job.step);
  try {
    return write_all(job, writer, exchange);
  } catch (...) {
    if (exchange->is_first()) writer.abandon();
    throw;
  }
}

}  // namespace pipewright
