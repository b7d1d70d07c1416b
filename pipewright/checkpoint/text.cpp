#include "pipewright/checkpoint/text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

using nlohmann::json;

constexpr int kMostNesting = 32;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw InvalidArgument("checkpoint", fmt::format("'{}' is damaged: {}", path, why));
}

/// The members seen of each object that is open.
class Members {
 public:
  explicit Members(const std::string& path) : path_(path) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    if (depth > kMostNesting) {
      refuse(path_, fmt::format("the JSON is nested more than {} deep", kMostNesting));
    }
    switch (event) {
      case json::parse_event_t::object_start: seen_.emplace_back(); break;
      case json::parse_event_t::object_end: seen_.pop_back(); break;
      case json::parse_event_t::key: add(parsed.get_ref<const std::string&>()); break;
      default: break;
    }
    return true;
  }

 private:
  void add(const std::string& name) {
    if (!seen_.back().insert(name).second) {
      refuse(path_, fmt::format("the member {} stands twice in one object", shown(name)));
    }
  }

  const std::string& path_;
  std::vector<std::set<std::string>> seen_;
};

}  // namespace

std::string shown(std::string_view name) {
  constexpr std::size_t kMost = 80;
  std::string text = "'";
  for (const char c : name.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return text + (name.size() > kMost ? "...'" : "'");
}

json parse_strict_json(std::string_view text, const std::string& path) {
  // The parser takes such a byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) refuse(path, "a byte of 0 is no JSON");
  try {
    Members members(path);
    return json::parse(text.begin(), text.end(),
                       [&](int depth, json::parse_event_t event, json& parsed) {
                         return members(depth, event, parsed);
                       });
  } catch (const json::parse_error& error) {
    refuse(path, fmt::format("no JSON at byte {}", error.byte));
  } catch (const json::exception& error) {
    refuse(path, fmt::format("no JSON that can be read: {}", error.what()));
  }
}

}  // namespace pipewright
