#include "pipewright/run/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "pipewright/base/file.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"
#include "tests/run/sample.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_checkpoint::TempFolder;

/// Reads what the format's description says, apart from the writer: the checksum bit by bit, the
/// message field by field.
std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? (crc >> 1U) ^ 0x82f63b78U : crc >> 1U;
  }
  return ~crc;
}

class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : left_(bytes) {}
  bool empty() const { return left_.empty(); }
  std::string_view take(std::size_t count) {
    if (count > left_.size()) throw std::runtime_error("the file ends within a record");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  std::uint64_t fixed(std::size_t count) {
    std::uint64_t value = 0;
    const std::string_view bytes = take(count);
    for (std::size_t i = 0; i < count; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
  }

 private:
  std::string_view left_;
};

struct Field {
  std::uint64_t number = 0;  // of varints and fixed ones
  std::string bytes;         // of messages and strings
};

/// The last value of each field.
std::map<std::uint64_t, Field> message(std::string_view bytes) {
  std::map<std::uint64_t, Field> fields;
  for (Bytes in(bytes); !in.empty();) {
    const std::uint64_t key = in.varint();
    Field& field = fields[key >> 3U];
    switch (key & 7U) {
      case 0: field.number = in.varint(); break;
      case 1: field.number = in.fixed(8); break;
      case 2: field.bytes = in.take(in.varint()); break;
      case 5: field.number = in.fixed(4); break;
      default: throw std::runtime_error("no wire type");
    }
  }
  return fields;
}

std::vector<std::string> records(const std::string& path) {
  std::vector<std::string> out;
  const std::string file = read_file(path, "test");
  const auto unmasked = [](std::uint64_t masked) {
    return std::rotl(static_cast<std::uint32_t>(masked - 0xa282ead8U), 15);
  };
  for (Bytes in(file); !in.empty();) {
    const std::string length(in.take(8));
    EXPECT_EQ(unmasked(in.fixed(4)), slow_crc32c(length));
    const std::string data(in.take(Bytes(length).fixed(8)));
    EXPECT_EQ(unmasked(in.fixed(4)), slow_crc32c(data));
    out.push_back(data);
  }
  return out;
}

struct Scalar {
  std::string tag;
  std::int64_t step = 0;
  float value = 0;
  double time = 0;
};

std::vector<Scalar> scalars(const std::string& path) {
  std::vector<Scalar> out;
  for (const std::string& record : records(path)) {
    auto event = message(record);
    if (!event.contains(5)) continue;
    auto value = message(message(event[5].bytes)[1].bytes);
    if (!value.contains(2)) continue;
    out.push_back({value[1].bytes, static_cast<std::int64_t>(event[2].number),
                   std::bit_cast<float>(static_cast<std::uint32_t>(value[2].number)),
                   std::bit_cast<double>(event[1].number)});
  }
  return out;
}

TEST(Crc32c, IsThatOfRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(EventWriter, BeginsWithTheVersionOfTheFormat) {
  const TempFolder dir;
  const EventWriter writer(dir / "tb", 0, 1.7e9);
  EXPECT_THAT(std::filesystem::path(writer.path()).filename().string(),
              StartsWith("events.out.tfevents.1700000000."));
  const auto all = records(writer.path());
  ASSERT_EQ(all.size(), 1U);
  auto event = message(all[0]);
  EXPECT_EQ(event[3].bytes, "brain.Event:2");
  EXPECT_EQ(std::bit_cast<double>(event[1].number), 1.7e9);
}

TEST(EventWriter, ScalarsAreReadBack) {
  const TempFolder dir;
  EventWriter writer(dir / "tb", 0, 1.7e9);
  writer.scalar("train/loss", 1, 2.5, 1.7e9 + 0.25);
  writer.scalar("train/loss", 300000000000, -0.125, 1.7e9 + 1);
  writer.scalar(std::string(300, 't'), 3, 1e300, 1.7e9);
  writer.scalar("nan", 4, std::numeric_limits<double>::quiet_NaN(), 1.7e9);
  const auto found = scalars(writer.path());
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].tag, "train/loss");
  EXPECT_EQ(found[0].step, 1);
  EXPECT_EQ(found[0].value, 2.5F);
  EXPECT_EQ(found[0].time, 1.7e9 + 0.25);
  EXPECT_EQ(found[1].step, 300000000000);
  EXPECT_EQ(found[1].value, -0.125F);
  EXPECT_EQ(found[2].tag, std::string(300, 't'));
  EXPECT_TRUE(std::isinf(found[2].value));
  EXPECT_TRUE(std::isnan(found[3].value));
}

TEST(EventWriter, TextIsAStringTensorOfTheTextPlugin) {
  const TempFolder dir;
  EventWriter writer(dir / "tb", 0, 1.7e9);
  writer.text("config", 0, "# a *title*", 1.7e9);
  auto value = message(message(message(records(writer.path())[1])[5].bytes)[1].bytes);
  EXPECT_EQ(value[1].bytes, "config");
  EXPECT_EQ(message(message(value[9].bytes)[1].bytes)[1].bytes, "text");
  auto tensor = message(value[8].bytes);
  EXPECT_EQ(tensor[1].number, 7U);  // DT_STRING
  EXPECT_EQ(message(message(tensor[2].bytes)[2].bytes)[1].number, 1U);
  EXPECT_EQ(tensor[8].bytes, "# a *title*");
}

TEST(EventWriter, AResumedSessionTellsReadersToForgetWhatCameAfter) {
  const TempFolder dir;
  const EventWriter first(dir / "tb", 0, 1.7e9);
  const EventWriter second(dir / "tb", 40, 1.7e9);
  EXPECT_NE(first.path(), second.path());
  auto start = message(records(second.path())[1]);
  EXPECT_EQ(start[2].number, 41U);
  EXPECT_EQ(message(start[7].bytes)[1].number, 1U);  // SessionLog.START
}

TEST(EventWriter, ARunsFilesHaveWhatItsMetricsHave) {
  const TempFolder dir;
  const std::string path = testing_run::make_sample_run(dir.path(), {.steps = 60});
  std::map<std::int64_t, float> losses;
  std::map<std::string, int> tags;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path + "/tb"))
    files.push_back(entry.path().string());
  ASSERT_EQ(files.size(), 2U);
  std::sort(files.begin(), files.end());  // NAME before NAME.2
  for (const std::string& file : files) {
    for (const Scalar& scalar : scalars(file)) {
      ++tags[scalar.tag];
      if (scalar.tag == "train/loss") losses[scalar.step] = scalar.value;
    }
  }
  const Metrics metrics = parse_metrics(read_file(path + "/metrics.jsonl", "test"), "m");
  ASSERT_EQ(metrics.steps.size(), 60U);
  for (const StepMetrics& step : metrics.steps)
    EXPECT_EQ(losses.at(step.step), static_cast<float>(step.loss));
  for (const char* tag : {"train/learning_rate", "train/gradient_norm", "speed/samples_per_second",
                          "speed/bubble", "memory/rank_3_peak_bytes", "validation/accuracy"})
    EXPECT_GT(tags[tag], 0) << tag;
}

TEST(EventWriter, SaysWhereItCannotWrite) {
  const TempFolder dir;
  write_file(dir / "tb", "", "test");
  EXPECT_THAT(refusal([&] { EventWriter(dir / "tb", 0, 0); }), HasSubstr("cannot make the folder"));
}

}  // namespace
}  // namespace pipewright
