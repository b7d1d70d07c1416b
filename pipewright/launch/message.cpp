#include "pipewright/launch/message.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/json.h"
#include "pipewright/launch/options.h"

namespace pipewright::launch {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostTextBytes = 2000;  // as JSON at most six times that: within a line
constexpr int kMostRanks = kMostNodes * kMostLocalRanks;
constexpr int kMostSignal = 64;

/// Safe to print and to put in JSON: printable ASCII, or what may be part of UTF-8.
std::string clean(std::string_view text) {
  std::string result(text.substr(0, kMostTextBytes));
  for (char& c : result) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return result;
}

ordered_json to_json(const Hello& m) {
  return {{"type", "hello"},
          {"version", m.version},
          {"nnodes", m.nnodes},
          {"node_rank", m.node_rank},
          {"local_ranks", m.local_ranks},
          {"max_restarts", m.max_restarts},
          {"deadline", m.deadline_seconds},
          {"host", clean(m.host)}};
}
ordered_json to_json(const Start& m) {
  return {{"type", "start"},
          {"attempt", m.attempt},
          {"first_rank", m.first_rank},
          {"world_size", m.world_size},
          {"master_addr", clean(m.master_addr)},
          {"master_port", m.master_port},
          {"run_id", clean(m.run_id)}};
}
ordered_json to_json(const Failed& m) {
  return {{"type", "failed"},
          {"attempt", m.attempt},
          {"local_rank", m.local_rank},
          {"code", m.status.code},
          {"signal", m.status.signal}};
}
ordered_json to_json(const Done& m) { return {{"type", "done"}, {"attempt", m.attempt}}; }
ordered_json to_json(const Stop& m) {
  return {{"type", "stop"},
          {"attempt", m.attempt},
          {"signal", m.signal},
          {"rank", m.rank},
          {"reason", clean(m.reason)}};
}
ordered_json to_json(const Stopped& m) { return {{"type", "stopped"}, {"attempt", m.attempt}}; }
ordered_json to_json(const CannotStart& m) {
  return {{"type", "cannot_start"}, {"status", m.status}, {"reason", clean(m.reason)}};
}
ordered_json to_json(const Interrupted& m) {
  return {{"type", "interrupted"}, {"signal", m.signal}};
}
ordered_json to_json(const End& m) {
  return {{"type", "end"}, {"status", m.status}, {"reason", clean(m.reason)}};
}
ordered_json to_json(const Ping&) { return {{"type", "ping"}}; }

/// An object's members as a message needs them.
class Reader {
 public:
  explicit Reader(const nlohmann::json& value) : object_(value, "control channel", "message") {}

  std::string text(const char* name) const { return clean(object_.string(name)); }
  double seconds(const char* name) const { return object_.non_negative(name); }
  int number(const char* name, int least, int most) const {
    return static_cast<int>(object_.integer(name, least, most));
  }
  int attempt() const { return number("attempt", 0, kMostRestarts); }
  void only(std::initializer_list<std::string_view> names) const { object_.refuse_unknown(names); }

 private:
  JsonObject object_;
};

Hello read_hello(const Reader& in) {
  Hello m;
  m.version = in.number("version", 0, 1 << 30);
  if (m.version != kProtocolVersion) return m;
  in.only({"type", "version", "nnodes", "node_rank", "local_ranks", "max_restarts", "deadline",
           "host"});
  m.nnodes = in.number("nnodes", 1, kMostNodes);
  m.node_rank = in.number("node_rank", 0, kMostNodes - 1);
  m.local_ranks = in.number("local_ranks", 1, kMostLocalRanks);
  m.max_restarts = in.number("max_restarts", 0, kMostRestarts);
  m.deadline_seconds = in.seconds("deadline");
  m.host = in.text("host").substr(0, 255);
  return m;
}

Start read_start(const Reader& in) {
  in.only({"type", "attempt", "first_rank", "world_size", "master_addr", "master_port", "run_id"});
  return {.attempt = in.attempt(),
          .first_rank = in.number("first_rank", 0, kMostRanks),
          .world_size = in.number("world_size", 1, kMostRanks),
          .master_addr = in.text("master_addr"),
          .master_port = in.number("master_port", 1, 65535),
          .run_id = in.text("run_id")};
}

Failed read_failed(const Reader& in) {
  in.only({"type", "attempt", "local_rank", "code", "signal"});
  return {
      .attempt = in.attempt(),
      .local_rank = in.number("local_rank", 0, kMostLocalRanks - 1),
      .status = {.code = in.number("code", 0, 255), .signal = in.number("signal", 0, kMostSignal)}};
}

Stop read_stop(const Reader& in) {
  in.only({"type", "attempt", "signal", "rank", "reason"});
  return {.attempt = in.attempt(),
          .signal = in.number("signal", 1, kMostSignal),
          .rank = in.number("rank", -1, kMostRanks),
          .reason = in.text("reason")};
}

Message read(const std::string& type, const Reader& in) {
  if (type == "hello") return read_hello(in);
  if (type == "start") return read_start(in);
  if (type == "failed") return read_failed(in);
  if (type == "stop") return read_stop(in);
  if (type == "ping") return Ping{};
  if (type == "done") return Done{in.attempt()};
  if (type == "stopped") return Stopped{in.attempt()};
  if (type == "interrupted") return Interrupted{in.number("signal", 1, kMostSignal)};
  if (type == "cannot_start") return CannotStart{in.number("status", 1, 255), in.text("reason")};
  if (type == "end") return End{in.number("status", 0, 255), in.text("reason")};
  throw InvalidArgument("control channel", fmt::format("'{}' is no message", type.substr(0, 40)));
}

}  // namespace

std::string encode(const Message& message) {
  const ordered_json json = std::visit([](const auto& m) { return to_json(m); }, message);
  // A text may be cut within a UTF-8 character, or be none: then it is replaced, not refused.
  return json.dump(-1, ' ', true, ordered_json::error_handler_t::replace) + '\n';
}

Message decode(std::string_view line) {
  const nlohmann::json json = parse_json(line, "control channel");
  const Reader in(json);
  return read(in.text("type"), in);
}

}  // namespace pipewright::launch
