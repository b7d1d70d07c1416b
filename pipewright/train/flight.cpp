#include "pipewright/train/flight.h"

#include "pipewright/train/step_program.h"

namespace pipewright {
namespace {

/// After so many pieces more a rank may hear what the others did of one: the last rank is behind
/// the first by at most what is carried from one piece to the next.
int pieces_until_heard(const ContinuingSchedule& schedule, int micro_batches) {
  return 1 + (schedule.most_carried() + micro_batches - 1) / micro_batches;
}

}  // namespace

Flight::Flight(Pipeline* pipeline, const Strategy& strategy, bool one_process, Report report,
               const std::function<Tensors(int stage)>& parameters)
    : pipeline_(pipeline),
      strategy_(strategy),
      one_process_(one_process),
      report_(std::move(report)),
      schedule_({strategy.schedule, strategy.ranks, strategy.vertical_sync}),
      delay_(pieces_until_heard(schedule_, strategy.micro_batches)),
      start_(std::chrono::steady_clock::now()) {
  for (const auto& rank : pipeline_->ranks()) {
    for (const auto& stage : rank->stages())
      rank->start_versions(stage->stage(), parameters(stage->stage()));
  }
  driver_ = std::thread([this] {
    try {
      pipeline_->run_on_ranks([this](int rank) { serve(static_cast<std::size_t>(rank)); },
                              [this] { fail(); });
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      failed_ = true;
    }
    changed_.notify_all();
  });
}

Flight::~Flight() {
  if (!driver_.joinable()) return;
  fail();
  pipeline_->transport().abort();
  driver_.join();
}

void Flight::fail() {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  changed_.notify_all();
}

/// Numbers for its micro-batches that no other under way has: those carried, at worst each of a
/// mini-batch of its own, this one, and one that other ranks may not have finished with.
void Flight::push(StepInput input, bool updates) {
  const int carried = schedule_.num_carried();
  input.first_number = num_pushed_ % (schedule_.most_carried() + 2) * strategy_.micro_batches;
  auto piece = std::make_shared<Piece>();
  piece->input = std::make_shared<const StepInput>(std::move(input));
  piece->updates = updates;
  const int count = static_cast<int>(piece->input->inputs.size());
  piece->program = lowered_piece(schedule_.next(count, updates), strategy_);
  ++num_pushed_;
  inputs_.push_back(piece->input);
  for (const auto& rank : pipeline_->ranks()) {  // what the caller's GPU work still makes of it
    for (const auto& stream : rank->streams()) stream->wait_for_current();
  }
  add_inputs(piece.get(), carried + count);
  add(std::move(piece));
  ++num_under_way_;
}

/// The mini-batches of the last `count` micro-batches.
void Flight::add_inputs(Piece* piece, int count) {
  std::size_t first = inputs_.size();
  int left = count;
  while (left > 0) left -= static_cast<int>(inputs_[--first]->inputs.size());
  inputs_.erase(inputs_.begin(), inputs_.begin() + static_cast<std::ptrdiff_t>(first));
  for (const auto& input : inputs_) {
    piece->inputs.add(left, input);
    left += static_cast<int>(input->inputs.size());
  }
}

void Flight::add(std::shared_ptr<Piece> piece) {
  piece->traces.resize(pipeline_->ranks().size());
  piece->reports.resize(pipeline_->ranks().size());
  piece->num_left = static_cast<int>(pipeline_->ranks().size());
  const std::lock_guard lock(mutex_);
  pieces_.push_back(std::move(piece));
  changed_.notify_all();
}

std::shared_ptr<Piece> Flight::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || pieces_.front()->num_left == 0; });
  if (failure_) {
    lock.unlock();
    join();
  }
  std::shared_ptr<Piece> piece = std::move(pieces_.front());
  pieces_.pop_front();
  ++num_taken_;
  --num_under_way_;
  return piece;
}

void Flight::drain() {
  if (!driver_.joinable()) return;
  const int carried = schedule_.num_carried();
  auto piece = std::make_shared<Piece>();
  piece->program = lowered_piece(schedule_.drain(), strategy_);
  add_inputs(piece.get(), carried);
  add(std::move(piece));
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  join();
}

void Flight::join() {
  driver_.join();
  if (failure_) std::rethrow_exception(failure_);
}

std::shared_ptr<Piece> Flight::wait_for(std::size_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed_ || closed_ || number < num_taken_ + pieces_.size(); });
  if (failed_ || number >= num_taken_ + pieces_.size()) return nullptr;
  return pieces_[number - num_taken_];
}

void Flight::serve(std::size_t rank) {
  std::size_t number = 0;
  while (const auto piece = wait_for(number)) run_piece(rank, number++, piece.get());
  if (one_process_) return;
  const auto delay = static_cast<std::size_t>(delay_);
  for (std::size_t left = number - std::min(number, delay); left < number; ++left) hear(rank, left);
}

void Flight::run_piece(std::size_t rank, std::size_t number, Piece* piece) {
  RankRunner& runner = *pipeline_->ranks()[rank];
  runner.run(piece->program, piece->inputs, start_, &piece->traces[rank]);
  piece->reports[rank] = report_(runner, *piece);
  if (one_process_) return finish(piece);
  pipeline_->sharing().tell(runner.rank(), static_cast<std::int64_t>(number),
                            pack(piece->reports[rank]));
  const auto delay = static_cast<std::size_t>(delay_);
  if (number >= delay) hear(rank, number - delay);
}

/// What all ranks did of an earlier piece.
void Flight::hear(std::size_t rank, std::size_t number) {
  const auto piece = wait_for(number);
  if (!piece) return;
  const int here = pipeline_->ranks()[rank]->rank();
  const auto all = pipeline_->sharing().hear(here, static_cast<std::int64_t>(number),
                                             pack(piece->reports[rank]));
  piece->reports.clear();
  for (const auto& numbers : all) piece->reports.push_back(unpack(numbers));
  finish(piece.get());
}

void Flight::finish(Piece* piece) {
  const std::lock_guard lock(mutex_);
  --piece->num_left;
  changed_.notify_all();
}

}  // namespace pipewright
