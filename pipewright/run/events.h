#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pipewright/run/files.h"

namespace pipewright {

/// CRC-32C (Castagnoli), as event files and iSCSI have it.
std::uint32_t crc32c(std::string_view text);

/// An event file of TensorBoard: records of a length, its checksum, an Event message of protobuf
/// and its checksum. Written at once, so a killed run leaves whole records but for the last, which
/// readers pass over. Throws StorageError where the disk refuses.
///
/// A session has a file of its own. It begins with a message that makes TensorBoard forget what
/// files before it have of steps beyond the one that the session continues from.
class EventWriter {
 public:
  /// In `folder`, which is made where absent: events.out.tfevents.TIME.HOST.PROCESS[.n].
  EventWriter(const std::string& folder, std::int64_t first_step, double unix_time);

  const std::string& path() const { return file_.path(); }

  void scalar(std::string_view tag, std::int64_t step, double value, double unix_time);

  /// Shown as Markdown.
  void text(std::string_view tag, std::int64_t step, std::string_view text, double unix_time);

 private:
  void event(std::string_view fields, std::int64_t step, double unix_time);

  AppendFile file_;
};

}  // namespace pipewright
