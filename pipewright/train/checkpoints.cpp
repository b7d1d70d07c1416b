#include "pipewright/train/checkpoints.h"

#include <fmt/format.h>

#include <chrono>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/writer.h"
#include "pipewright/train/restore.h"
#include "pipewright/train/run_state.h"
#include "pipewright/train/weights_file.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

json to_json(const NewestWhole& newest) {
  json refused = json::array();
  for (const RefusedCheckpoint& one : newest.refused) refused.push_back({one.path, one.reason});
  return {{"path", newest.checkpoint ? newest.checkpoint->path() : ""}, {"refused", refused}};
}

}  // namespace

Checkpoints::Checkpoints(Training* training)
    : training_(training),
      exchanges_(training->grid().world, "checkpoint",
                 std::chrono::duration<double>(training->strategy().deadline_seconds)) {}

Checkpoints::~Checkpoints() {
  if (writer_.joinable()) writer_.join();
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    TORCH_WARN("the last checkpoint was not saved: ", error.what());
  }
}

void Checkpoints::wait() {
  if (writer_.joinable()) writer_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

std::string Checkpoints::save(const std::string& dir, SaveOptions options) {
  if (options.keep < 0)
    throw InvalidArgument("checkpoint",
                          fmt::format("keep = {}; use 0 (all) or more", options.keep));
  wait();
  const auto start = Clock::now();
  auto job = std::make_shared<SaveJob>();
  job->dir = dir;
  job->step = training_->num_steps();
  job->keep = options.keep;
  const json state = state_of(*training_, options.state);
  to_text(Manifest{job->step, state, {}});  // refuses here what cannot be written
  try {
    job->snapshot = take_snapshot(training_, false);
  } catch (...) {
    if (training_->grid().one_process()) throw;
    job->failure = std::current_exception();  // the other processes save, and must be told
  }
  job->snapshot.state = state;
  job->tidy = tidied_.insert(dir).second;
  SaveReport report;
  report.path = CheckpointWriter(dir, job->step).path();
  report.step = job->step;
  report.held_seconds = seconds_since(start);
  writer_ = std::thread([this, job, options, report, exchange = exchanges_.begin()] {
    write(*job, options, report, exchange);
  });
  if (!options.background) wait();
  return report.path;
}

/// On the writer's thread: nothing may be thrown out of it.
void Checkpoints::write(const SaveJob& job, const SaveOptions& options, SaveReport report,
                        Exchange exchange) {
  const auto start = Clock::now();
  std::exception_ptr failure;
  try {
    report.bytes = write_checkpoint(job, &exchange);
  } catch (const std::exception& error) {
    failure = std::current_exception();
    report.error = error.what();
  }
  exchanges_.end(exchange);
  report.write_seconds = seconds_since(start);
  try {
    if (options.done) {
      options.done(report);
      failure = nullptr;
    }
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  failure_ = failure;
}

Resumed Checkpoints::resume(const std::string& dir) {
  wait();
  Exchanges::Turn turn(&exchanges_);
  Exchange& exchange = turn.exchange();
  std::optional<Checkpoint> checkpoint;
  const json newest = exchange.together([&] {
    if (!exchange.is_first()) return json();
    NewestWhole found = newest_whole(dir);
    json value = to_json(found);
    checkpoint = std::move(found.checkpoint);
    return value;
  })[0];
  Resumed resumed;
  resumed.path = newest.at("path").get<std::string>();
  for (const json& one : newest.at("refused"))
    resumed.refused.push_back({one.at(0).get<std::string>(), one.at(1).get<std::string>()});
  if (!resumed) return resumed;
  exchange.together([&] {
    if (!checkpoint) checkpoint = open_checkpoint(resumed.path);
    return json();
  });
  Restore restore(training_, &exchange);
  restore.read_checkpoint(*checkpoint, &resumed.notes);
  restore.apply();
  resumed.step = checkpoint->step();
  resumed.state = checkpoint->state().value("caller", json());
  return resumed;
}

Loaded Checkpoints::load_weights(const std::string& path, const LoadOptions& options) {
  wait();
  Exchanges::Turn turn(&exchanges_);
  Exchange& exchange = turn.exchange();
  TensorSet set;
  exchange.together([&] {
    set = open_weights(path);
    return json();
  });
  Restore restore(training_, &exchange);
  Loaded loaded = restore.read_weights(set, options, path);
  restore.apply();
  return loaded;
}

void Checkpoints::save_weights(const std::string& path, const NamesInFile& names) {
  wait();
  check_weights_path(path, training_->grid().num_processes());
  Exchanges::Turn turn(&exchanges_);
  Exchange& exchange = turn.exchange();
  Snapshot snapshot;
  exchange.together([&] {
    snapshot = take_snapshot(training_, true);
    return json();
  });
  write_weights(path, snapshot, &exchange, names);
}

}  // namespace pipewright
