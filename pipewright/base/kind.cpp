#include "pipewright/base/kind.h"

namespace pipewright {

std::string_view kind_name(Kind kind) {
  static constexpr std::array<std::string_view, kAllKinds.size()> kNames = {
      "F", "B", "I", "W", "R", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE", "STEP"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<Kind> parse_kind(std::string_view name) {
  for (const Kind kind : kAllKinds) {
    if (kind_name(kind) == name) return kind;
  }
  return std::nullopt;
}

std::string_view kind_words(Kind kind) {
  static constexpr std::array<std::string_view, kAllKinds.size()> kWords = {
      "forward",
      "backward",
      "backward (input gradient)",
      "backward (weight gradient)",
      "recompute",
      "send activation",
      "receive activation",
      "send gradient",
      "receive gradient",
      "reduce gradients",
      "optimizer step"};
  return kWords[static_cast<std::size_t>(kind)];
}

}  // namespace pipewright
