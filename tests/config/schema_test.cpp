#include "pipewright/config/schema.h"

#include <gtest/gtest.h>

#include <set>

#include "pipewright/config/nearest.h"
#include "tests/config/sample.h"

namespace pipewright::config {
namespace {

TEST(Schema, NamesStandOnce) {
  std::set<std::string> names;
  for (const Section& section : schema(sample_known())) {
    for (const Setting& setting : section.settings)
      EXPECT_TRUE(names.insert(full_name(section, setting)).second) << full_name(section, setting);
  }
}

TEST(Schema, EveryKeyHasAPlaceOfItsOwn) {
  Config config;
  std::set<const void*> places;
  for (const Section& section : schema(sample_known())) {
    for (const Setting& setting : section.settings) {
      const void* place =
          std::visit([](const auto* held) -> const void* { return held; }, setting.field(config));
      EXPECT_TRUE(places.insert(place).second) << full_name(section, setting);
    }
  }
}

TEST(Schema, ConditionsNameKeysThatAreThere) {
  const std::vector<Section> sections = schema(sample_known());
  for (const Section& section : sections) {
    for (const Setting& setting : section.settings) {
      if (setting.counts.key.empty()) continue;
      const Option& other = setting_of(sections, setting.counts.key).option;
      for (const std::string& value : setting.counts.values) {
        const auto is_value = [&](const Choice& choice) { return choice.name == value; };
        EXPECT_TRUE(std::any_of(other.choices.begin(), other.choices.end(), is_value)) << value;
      }
    }
  }
}

TEST(Schema, DefaultsAreAllowed) {
  for (const Section& section : schema({})) {
    for (const Setting& setting : section.settings) {
      const Option& option = setting.option;
      const auto* text = std::get_if<std::string>(&option.fallback);
      if (text != nullptr && !text->empty() && !option.choices.empty()) {
        const auto is_default = [&](const Choice& choice) { return choice.name == *text; };
        EXPECT_TRUE(std::any_of(option.choices.begin(), option.choices.end(), is_default))
            << full_name(section, setting);
      }
      const auto* whole = std::get_if<std::int64_t>(&option.fallback);
      if (whole != nullptr && !setting.required) {
        EXPECT_TRUE(option.range.has(static_cast<double>(*whole))) << full_name(section, setting);
      }
    }
  }
}

TEST(Schema, ANameThatIsNotThereIsOurMistake) {
  EXPECT_THROW(setting_of(schema({}), "pipeline.rank"), InternalError);
  EXPECT_THROW(setting_of(schema({}), "pipeline"), InternalError);
}

TEST(EditDistance, CountsLetters) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("ranks", "ranks"), 0);
  EXPECT_EQ(edit_distance("rank", "ranks"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("rnaks", "ranks"), 1);  // two neighbours swapped
  EXPECT_EQ(edit_distance("Micro-Batches", "micro_batches"), 0);
}

TEST(EditDistance, IsTheSameBothWays) {
  const std::vector<std::string> words = {"",      "a",      "ab",    "ba",
                                          "ranks", "shards", "sizes", "seizes"};
  for (const std::string& one : words) {
    for (const std::string& other : words)
      EXPECT_EQ(edit_distance(one, other), edit_distance(other, one)) << one << " " << other;
  }
}

TEST(Nearest, IsSilentWhereNothingIsNear) {
  EXPECT_EQ(nearest("rank", {"ranks", "chunks"}), "ranks");
  EXPECT_EQ(nearest("chunk", {"ranks", "chunks"}), "chunks");
  EXPECT_EQ(nearest("quux", {"ranks", "chunks"}), "");
  EXPECT_EQ(nearest("x", {"y", "lr"}), "");
  EXPECT_EQ(nearest("rl", {"y", "lr"}), "lr");
  EXPECT_EQ(nearest("", {"lr"}), "");
  EXPECT_EQ(nearest(std::string(1000, 'r'), {"ranks"}), "");
  EXPECT_EQ(nearest("ab", {}), "");
}

}  // namespace
}  // namespace pipewright::config
