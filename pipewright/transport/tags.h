#pragma once

#include <cstdint>

#include "pipewright/transport/transport.h"

namespace pipewright {

/// What tells the messages of a Gloo group apart. Those of keys begin at 0; these are beyond them.
inline constexpr int kOtherTags = 7 << 28;
inline constexpr int kGoodbyeTag = kOtherTags;
inline constexpr int kAnnounceTag = kOtherTags + 1;
inline constexpr int kLongAnnounceTag = kOtherTags + 2;

/// Throws InvalidArgument for a key that has no tag: too high a stage or index.
void check_key(const MessageKey& key);

/// Messages of one key come in order; the tag tells keys apart, micro-batches up to 4096 of them:
/// never are that many of one stage under way. `part`: 0 to 3.
int tag_of(const MessageKey& key, std::uint8_t part);

}  // namespace pipewright
