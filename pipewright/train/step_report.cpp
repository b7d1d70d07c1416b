#include "pipewright/train/step_report.h"

#include <algorithm>

namespace pipewright {
namespace {

class Reader {
 public:
  explicit Reader(const std::vector<double>& numbers) : numbers_(numbers) {}
  double next() { return numbers_.at(at_++); }
  std::size_t count() { return static_cast<std::size_t>(next()); }
  std::vector<std::int64_t> counts() {
    std::vector<std::int64_t> result(count());
    for (auto& number : result) number = static_cast<std::int64_t>(next());
    return result;
  }

 private:
  const std::vector<double>& numbers_;
  std::size_t at_ = 0;
};

void add_counts(const std::vector<std::int64_t>& counts, std::vector<double>* numbers) {
  numbers->push_back(static_cast<double>(counts.size()));
  for (const std::int64_t number : counts) numbers->push_back(static_cast<double>(number));
}

/// Each is known by one rank, and 0 in the others.
void add(const std::vector<std::int64_t>& counts, std::vector<std::int64_t>* sums) {
  for (std::size_t i = 0; i < sums->size(); ++i) (*sums)[i] += counts.at(i);
}

}  // namespace

std::vector<double> pack(const StepReport& report) {
  std::vector<double> numbers = {report.loss_sum, report.weight, report.stops, report.started};
  add_counts(report.rank_peaks, &numbers);
  add_counts(report.stage_peaks, &numbers);
  add_counts(report.versions, &numbers);
  numbers.push_back(static_cast<double>(report.spans.size()));
  for (const Span& span : report.spans) {
    numbers.insert(
        numbers.end(),
        {span.start, span.end, span.link_wait, static_cast<double>(span.stage),
         static_cast<double>(span.micro_batch), static_cast<double>(static_cast<int>(span.kind)),
         static_cast<double>(span.version)});
  }
  numbers.push_back(static_cast<double>(report.memory.size()));
  for (const MemoryPoint& point : report.memory)
    numbers.insert(numbers.end(), {point.time, point.bytes});
  return numbers;
}

StepReport unpack(const std::vector<double>& numbers) {
  Reader reader(numbers);
  StepReport report;
  report.loss_sum = reader.next();
  report.weight = reader.next();
  report.stops = reader.next();
  report.started = reader.next();
  report.rank_peaks = reader.counts();
  report.stage_peaks = reader.counts();
  report.versions = reader.counts();
  report.spans.resize(reader.count());
  for (Span& span : report.spans) {
    span.start = reader.next();
    span.end = reader.next();
    span.link_wait = reader.next();
    span.stage = static_cast<int>(reader.next());
    span.micro_batch = static_cast<int>(reader.next());
    span.kind = static_cast<Kind>(static_cast<int>(reader.next()));
    span.version = static_cast<int>(reader.next());
  }
  report.memory.resize(reader.count());
  for (MemoryPoint& point : report.memory) {
    point.time = reader.next();
    point.bytes = reader.next();
  }
  return report;
}

StepReport join_reports(std::vector<StepReport> reports, Timeline* timeline) {
  StepReport joined = reports.front();
  for (const StepReport& report : reports)
    joined.started = std::min(joined.started, report.started);
  timeline->ranks.clear();
  timeline->memory.clear();
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    StepReport& report = reports[rank];
    const double later = report.started - joined.started;
    for (Span& span : report.spans) {
      span.start += later;
      span.end += later;
    }
    for (MemoryPoint& point : report.memory) point.time += later;
    timeline->ranks.push_back(std::move(report.spans));
    timeline->memory.push_back(std::move(report.memory));
    if (rank == 0) continue;
    joined.loss_sum += report.loss_sum;
    joined.weight += report.weight;
    joined.stops += report.stops;
    add(report.rank_peaks, &joined.rank_peaks);
    add(report.stage_peaks, &joined.stage_peaks);
    add(report.versions, &joined.versions);
  }
  joined.spans.clear();
  joined.memory.clear();
  return joined;
}

}  // namespace pipewright
