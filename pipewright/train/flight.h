#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "pipewright/schedule/continuing.h"
#include "pipewright/train/pipeline.h"
#include "pipewright/train/step_report.h"

namespace pipewright {

/// What a mini-batch brings to an asynchronous pipeline, and what is known of it when all ranks
/// have been through.
struct Piece {
  std::shared_ptr<const StepInput> input;  // null: the rest is done, nothing new begins
  bool updates = false;
  Program program;
  ProgramInput inputs;
  std::vector<RankTrace> traces;    // by rank of this process
  std::vector<StepReport> reports;  // by rank of this process; when it is finished, by rank
  int num_left = 0;                 // ranks of this process that have not finished it
};

/// An asynchronous pipeline under way, from its first mini-batch until it is drained. The ranks
/// take one piece after the other and never meet:
///
///     caller    push 0 | push 1 | push 2 | push 3, take 0 | ...
///     rank 0           [ piece 0 ][ piece 1 ][ piece 2 ]...
///     rank 1              [ piece 0 ][ piece 1 ][ piece 2 ]...
///
/// Of several processes each tells the others what it did of a piece, and hears theirs some pieces
/// later, when they are surely through: nobody waits for that. All calls from one thread.
class Flight {
 public:
  /// What a rank of this process has to say of a piece that it has run; on the rank's thread.
  using Report = std::function<StepReport(RankRunner& rank, const Piece& piece)>;

  /// The weights are as the stages have them: `parameters` of each.
  Flight(Pipeline* pipeline, const Strategy& strategy, bool one_process, Report report,
         const std::function<Tensors(int stage)>& parameters);
  /// Where it is not drained, ends it as it stands.
  ~Flight();
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  Flight(Flight&&) = delete;
  Flight& operator=(Flight&&) = delete;

  /// The next mini-batch; `updates` as of ContinuingSchedule. Returns at once. Throws
  /// InvalidArgument for one that the schedule cannot take, and then nothing has changed.
  void push(StepInput input, bool updates);

  /// So many pieces must be under way that no rank waits for the caller.
  int depth() const { return delay_ + 1; }
  /// Pieces of mini-batches that were pushed and not taken.
  int num_under_way() const { return num_under_way_; }

  /// The oldest of them, when all ranks have finished it. Throws what a rank failed with.
  std::shared_ptr<Piece> take();

  /// Does the rest: when it returns, all ranks have ended. Pieces stay to be taken.
  void drain();

 private:
  void add(std::shared_ptr<Piece> piece);
  void add_inputs(Piece* piece, int count);
  std::shared_ptr<Piece> wait_for(std::size_t number);
  void serve(std::size_t rank);
  void run_piece(std::size_t rank, std::size_t number, Piece* piece);
  void hear(std::size_t rank, std::size_t number);
  void finish(Piece* piece);
  void fail();
  void join();

  Pipeline* pipeline_;
  Strategy strategy_;
  bool one_process_;
  Report report_;
  ContinuingSchedule schedule_;
  int delay_;  // pieces
  std::chrono::steady_clock::time_point start_;
  std::deque<std::shared_ptr<const StepInput>> inputs_;  // of micro-batches that may be under way
  int num_pushed_ = 0;
  int num_under_way_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Piece>> pieces_;
  std::size_t num_taken_ = 0;  // pieces before the first of those
  bool closed_ = false;        // no piece follows
  bool failed_ = false;
  std::exception_ptr failure_;
  std::thread driver_;  // last: it uses the others
};

}  // namespace pipewright
