#include "pipewright/transport/tags.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

constexpr int kMostStages = 512;
constexpr int kMostIndices = 32;
constexpr int kMicroBatches = 4096;
constexpr int kParts = 4;
static_assert(kOtherTags / kParts / kMostStages / kMostIndices / kMicroBatches >
              static_cast<int>(MessageKind::kTiedValue));

}  // namespace

void check_key(const MessageKey& key) {
  if (key.stage < kMostStages && key.index < kMostIndices) return;
  throw InvalidArgument(
      "transport", fmt::format("stage {} and number {} of the {}; between processes there may be "
                               "up to {} stages, and up to {} skips, ranks and tied weights",
                               key.stage, key.index, to_text(key), kMostStages, kMostIndices));
}

int tag_of(const MessageKey& key, std::uint8_t part) {
  check_key(key);
  int tag = static_cast<int>(key.kind);
  tag = tag * kParts + part;
  tag = tag * kMostStages + key.stage;
  tag = tag * kMostIndices + key.index;
  return tag * kMicroBatches + key.micro_batch % kMicroBatches;
}

}  // namespace pipewright
