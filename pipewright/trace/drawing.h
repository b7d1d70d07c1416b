#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/trace/timeline.h"

namespace pipewright {

/// What the writers of pictures share.

/// From the first start to the last end of any rank; both 0 where nothing ran. Spans whose times
/// are no finite numbers do not count.
struct Extent {
  double start = 0;
  double end = 0;

  double length() const { return end - start; }
  bool empty() const { return !(length() > 1e-300); }  // less cannot be divided into columns
};
Extent extent(const Timeline& timeline);
double longest(std::span<const Timeline> timelines);  // the greatest length of any

/// True where a span's times are numbers below 1e300, so that sums of them are finite, and it does
/// not end before it starts.
bool drawable(const Span& span);

/// `value`, kept within 1e308 (0 for not-a-number), since JSON has finite numbers only.
double finite(double value);

/// The stages of a rank in rising order: a stage's place among them is its chunk.
std::vector<int> stages_of(const std::vector<Span>& rank);
int chunk_of(int stage, const std::vector<int>& stages);
int num_chunks(const Timeline& timeline);  // the most that any rank has; at least 1

/// True of asynchronous schedules: spans know the version of the weights they used or made.
bool has_versions(const Timeline& timeline);

/// Which of the shades of its kind a span has: by its version where it has one, else by its chunk.
int shade_of(const Span& span, const std::vector<int>& stages);

/// The kinds that occur with some length, in the order of kAllKinds.
std::vector<Kind> kinds_in(std::span<const Timeline> timelines);

/// What a box says: F12, STEP; with its version F12@3, STEP@4.
std::string span_label(const Span& span);
std::string label_without_version(const Span& span);

/// A time of `timeline` for a reader: `33`, or with the unit "s" `3.1 ms`; other units are
/// appended.
std::string format_time(double time, std::string_view unit);

/// `step time 33, bubble 27.3%`, or `nothing ran`. Of an asynchronous schedule, which is more or
/// less than a step and may have a warm-up in it, `whole time 81, idle 11.1%`.
std::string summary(const Timeline& timeline);

/// The least of 1, 2, 5, 10, 20, ... (and of .5, .2, ...) that divides `length` into at most `most`
/// parts.
double tick_step(double length, int most);

/// A string as JSON, quotes included: in ASCII, and safe inside a <script> element. Bytes that are
/// no UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace pipewright
