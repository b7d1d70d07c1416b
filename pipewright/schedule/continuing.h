#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "pipewright/ir/program.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright {

struct ContinuingSpec {
  std::string name;  // "pipedream" or "pipedream-2bw", with "eager-" before it or without
  int ranks = 1;
  /// Not of those with two versions: all stages use, for a micro-batch, the version that the first
  /// stage used.
  bool vertical_sync = false;
};

/// Writes an asynchronous schedule, mini-batch by mini-batch: every piece is a Program that goes on
/// where the one before it stopped (Program::carried), and the pieces one after the other are the
/// schedule. Compute and STEP with their versions; sends and REDUCE are added by lowering.
class ContinuingSchedule {
 public:
  /// Throws InvalidArgument for another name, ranks below 1, or vertical_sync of one with two
  /// versions, where all stages use the same version anyway.
  explicit ContinuingSchedule(ContinuingSpec spec);

  /// The piece that a mini-batch of so many micro-batches brings: all its forwards, and the
  /// backwards whose turn it then is. `updates`: the gradients since the last update are complete
  /// with this mini-batch; else they are merged with those of the next ones. Throws InvalidArgument
  /// for less than one micro-batch, and for an update from fewer micro-batches than
  /// least_between_updates() since the one before; the schedule then is as it was.
  Program next(int micro_batches, bool updates);

  /// All backwards that are left: afterwards every stage has the same version, the newest, and no
  /// other is needed. The next piece begins with a warm-up.
  Program drain();

  /// Micro-batches that the next piece will find under way.
  int num_carried() const;
  /// The most that any piece will find under way.
  int most_carried() const { return static_cast<int>(ahead(0)); }

 private:
  /// A micro-batch that stage 0 has not yet done the backward of.
  struct UnderWay {
    bool completes_update;
    int same_version;           // of those with two versions: of all stages
    std::vector<int> versions;  // by rank, those whose forward is written
  };
  struct RankState {
    std::int64_t backwards = 0;  // done since the start: the next one's number
    int newest = 0;              // version
  };

  std::int64_t ahead(std::size_t rank) const;
  UnderWay& under_way(std::int64_t micro_batch);
  int forward_version(std::size_t rank, const UnderWay& micro_batch) const;
  int oldest_needed(std::size_t rank) const;
  int version_of_group() const;
  void write_forward(std::size_t rank, std::int64_t micro_batch, Program* piece);
  void write_backward(std::size_t rank, Program* piece);
  Program begin_piece() const;
  void finish_piece(Program* piece);

  ContinuingSpec spec_;
  ScheduleInfo info_;
  std::int64_t num_forwards_ = 0;  // micro-batches since the start
  std::int64_t first_ = 0;         // the micro-batch at the front of under_way_
  std::int64_t drained_at_ = 0;    // num_forwards_ at the last drain
  int num_updates_ = 0;            // mini-batches with `updates` so far
  int updates_at_drain_ = 0;       // num_updates_ then
  std::int64_t merged_ = 0;        // micro-batches since the last mini-batch with `updates`
  std::vector<RankState> ranks_;
  std::deque<UnderWay> under_way_;
};

/// Pieces one after the other, from the first one on, as one Program: micro-batches numbered
/// through.
Program join_pieces(const std::vector<Program>& pieces);

}  // namespace pipewright
