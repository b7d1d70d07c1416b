// What is written reads back as the same.

#include "pipewright/config/write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <sstream>

#include "pipewright/config/rules.h"
#include "pipewright/config/schema.h"
#include "tests/config/sample.h"

namespace pipewright::config {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// Values of all kinds that an option allows, those at its bounds and odd texts among them.
class RandomValues {
 public:
  explicit RandomValues(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t bound) { return random_() % bound; }

  Value value(const Option& option) {
    switch (option.type) {
      case Type::kFlag: return below(2) == 1;
      case Type::kInteger:
      case Type::kBytes: return integer(option);
      case Type::kNumber: return number(option);
      case Type::kText: return text(option);
      case Type::kIntegers: return list<std::int64_t>(option, &RandomValues::integer);
      case Type::kNumbers: return list<double>(option, &RandomValues::number);
      case Type::kTexts: return list<std::string>(option, &RandomValues::text);
    }
    return false;
  }

 private:
  std::int64_t integer(const Option& option) {
    const auto least = static_cast<std::int64_t>(option.range.least);
    const bool bounded = option.range.most < 0x1p62;
    const auto most =
        bounded ? static_cast<std::int64_t>(option.range.most) : std::int64_t{1} << 62;
    switch (below(4)) {
      case 0: return least;
      case 1: return most;
      case 2: return std::min<std::int64_t>(most, std::int64_t{1} << below(62));
      default: return std::min<std::int64_t>(most, least + static_cast<std::int64_t>(below(8)));
    }
  }

  double number(const Option& option) {
    const double most = std::min(option.range.most, 1e300);
    const double share = static_cast<double>(random_()) / 0x1p32;
    switch (below(3)) {
      case 0: return option.range.above_least ? option.range.least + 1e-300 : option.range.least;
      case 1: return option.range.below_most ? most * 0.75 : most;
      default: return option.range.least + (std::min(most, 10.0) - option.range.least) * share;
    }
  }

  std::string text(const Option& option) {
    static const std::vector<std::string> kOdd = {
        "a",       "a b",      "\"quoted\"", "back\\slash",          "# no", "line\nbreak",
        "tab\t\r", "\x01\x7f", "= [1]",      "\xC3\xA4\xE2\x82\xAC", "'",    "\"\"\""};
    if (option.misformed != nullptr) return below(2) == 1 ? "cpu" : "cuda:3";
    if (option.choices.empty()) return kOdd[below(kOdd.size())];
    return option.choices[below(option.choices.size())].name;
  }

  template <typename Element>
  std::vector<Element> list(const Option& option, Element (RandomValues::*one)(const Option&)) {
    std::vector<Element> elements;
    const std::size_t length = option.length > 0 ? option.length : below(5);
    while (elements.size() < length) elements.push_back((this->*one)(option));
    return elements;
  }

  std::mt19937 random_;
};

/// Keys that must change together, or not at all.
void set_some_together(RandomValues* random, Config* config) {
  switch (random->below(7)) {
    case 0:
      config->train.steps = 0;
      config->train.epochs = 3;
      break;
    case 1:
      config->train.schedule = "step";
      config->train.schedule_every = 7;
      break;
    case 2:
      config->pipeline.partition = "manual";
      config->pipeline.sizes = {5};
      break;
    case 3:
      config->recompute.mode = "named";
      config->recompute.checkpoints = {"block1"};
      break;
    case 4:
      config->recompute.mode = "budget";
      config->recompute.budget = 1000;
      break;
    case 5:
      config->recompute.mode = "every";
      config->recompute.every = 3;
      break;
    default: break;
  }
}

/// A config that holds by all rules: random values are put in as long as they do.
Config random_config(RandomValues* random, const Known& known) {
  const Component& model = known.models[random->below(known.models.size())];
  Config config;
  config.model.name = model.name;
  config.data.name = model.goes_with;
  config.data.batch = 64;
  config.train.steps = 100;
  set_some_together(random, &config);
  for (const Option& option : model.parameters)
    config.model.parameters.set(option.name, random->value(option));
  for (const Option& option : find(known.data, config.data.name)->parameters)
    config.data.parameters.set(option.name, random->value(option));
  for (int pass = 0; pass < 2; ++pass) {  // what counts beside another key may come in the second
    for (const Section& section : schema(known)) {
      for (const Setting& setting : section.settings) {
        const std::string key = full_name(section, setting);
        if (key == "model.name" || key == "model.file" || key == "data.name") continue;
        Config changed = config;
        setting.set(&changed, random->value(setting.option));
        if (random->below(2) == 1 && conflicts(changed, known).empty()) config = changed;
      }
    }
  }
  return config;
}

/// Of the keys of all sections, those whose value is not the default.
void note_changes(const Config& config, const Known& known, std::set<std::string>* changed) {
  for (const Section& section : schema(known)) {
    for (const Setting& setting : section.settings) {
      if (setting.value_in(config) != setting.option.fallback)
        changed->insert(full_name(section, setting));
    }
  }
}

TEST(Writer, RandomConfigsReadBackAsTheSame) {
  const Known known = sample_known();
  RandomValues random(1);
  std::set<std::string> changed;
  for (int i = 0; i < 120; ++i) {
    const Config config = random_config(&random, known);
    note_changes(config, known, &changed);
    const std::string text = to_toml(config);
    SCOPED_TRACE(text);
    ASSERT_THAT(problems_of(text), IsEmpty());
    EXPECT_EQ(read_text(text, "run.toml", {}, known), config);
    EXPECT_EQ(to_toml(read_text(text, "run.toml", {}, known)), text);
    const std::string commented = commented_toml(config, known, "A test");
    ASSERT_THAT(problems_of(commented), IsEmpty());
    EXPECT_EQ(read_text(commented, "run.toml", {}, known), config);
  }
  // Every key had another value than its default at least once, but for the rare ones.
  for (const Section& section : schema(known)) {
    for (const Setting& setting : section.settings) {
      const std::string key = full_name(section, setting);
      if (key == "model.file") continue;  // beside a name
      EXPECT_TRUE(changed.contains(key)) << key;
    }
  }
}

TEST(Writer, AModelOfAFileReadsBack) {
  Config config;
  config.model.file = "a \"b\".pt";
  config.data.name = "text";
  config.data.batch = 1;
  config.data.parameters.set("seq", std::int64_t{8});
  config.train.epochs = 2;
  EXPECT_EQ(read_text(to_toml(config), "run.toml", {}, sample_known()), config);
}

TEST(Writer, UndeclaredParametersReadBack) {
  Config config;
  config.model.name = "own";
  config.model.parameters.set("depth", std::int64_t{3});
  config.model.parameters.set("odd name", 1.0);
  config.model.parameters.set("shares", std::vector<double>{1, 2});
  config.data.name = "mine";
  config.data.batch = 1;
  config.train.steps = 1;
  EXPECT_EQ(read_text(to_toml(config), "run.toml", {}, {}), config);
  EXPECT_EQ(read_text(commented_toml(config, {}, "A test"), "run.toml", {}, {}), config);
}

Config starter() {
  Config config;
  config.model.name = "gpt";
  const Known known = sample_known();
  for (const Option& option : known.models[0].parameters)
    config.model.parameters.set(option.name, option.fallback);
  config.data.name = "text";
  config.data.parameters.set("seq", std::int64_t{64});
  config.data.batch = 8;
  config.train.steps = 10;
  return config;
}

/// A line `# key = value` without its comment sign; other lines as they are.
std::string uncommented(const std::string& line) {
  const std::size_t end = line.find(" = ");
  const bool key = line.starts_with("# ") && end != std::string::npos &&
                   line.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", 2) == end;
  return key ? line.substr(2) : line;
}

TEST(CommentedConfig, CommentedKeysStandThereWithTheirDefaults) {
  const std::string text = commented_toml(starter(), sample_known(), "A test");
  EXPECT_EQ(read_text(text, "run.toml", {}, sample_known()), starter());
  std::istringstream lines(text);
  std::string all;
  std::size_t keys = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100U) << line;
    keys += uncommented(line) == line ? 0 : 1;
    all += uncommented(line) + "\n";
  }
  std::size_t wanted = starter().model.parameters.all().size() + 1;  // and the data's
  for (const Section& section : schema(sample_known())) wanted += section.settings.size();
  EXPECT_EQ(keys, wanted - 4);  // those that are set: two names, batch, steps
  EXPECT_EQ(read_text(all, "run.toml", {}, sample_known()), starter());
}

TEST(CommentedConfig, ExplainsEachKey) {
  const std::string text = commented_toml(starter(), sample_known(), "A test");
  EXPECT_THAT(text, testing::StartsWith("# A test\n#\n"));
  EXPECT_THAT(text,
              HasSubstr("\n[pipeline]\n# How the model lies over ranks, and what runs when.\n\n"
                        "# Workers that each hold a part of the model. A whole number, 1 or "
                        "more.\n# ranks = 1\n"));
  EXPECT_THAT(text, HasSubstr("# Which micro-batch runs when on which rank.\n"
                              "#   \"gpipe\"             All forwards, then all backwards.\n"
                              "#   \"1f1b\"              One forward, one backward.\n"
                              "#   \"interleaved-1f1b\"  Several chunks a rank.\n"
                              "#   \"pipedream\"         1f1b that goes on.\n"
                              "#   \"pipedream-2bw\"     The same with two versions.\n"
                              "#   \"eager-pipedream\"   pipedream with a reserve.\n"
                              "# schedule = \"1f1b\"\n"));
  EXPECT_THAT(text, HasSubstr("\n# Blocks. A whole number, 1 or more.\n# layers = 4\n"));
  EXPECT_THAT(text, HasSubstr("Only with recompute.mode = \"every\".\n# every = 1\n"));
}

TEST(Reference, HasEveryKeyOnce) {
  const std::string page = reference_page(sample_known());
  for (const Section& section : schema(sample_known())) {
    if (!section.name.empty()) {
      EXPECT_THAT(page, HasSubstr("\n## [" + section.name + "]\n"));
    }
    for (const Setting& setting : section.settings) {
      EXPECT_THAT(page, HasSubstr("| `" + setting.option.name + "` | "));
      EXPECT_TRUE(setting.option.words.ends_with('.')) << setting.option.name;
    }
  }
  EXPECT_THAT(page,
              HasSubstr("| `budget` | bytes such as 1048576 or \"8GiB\", 0 or more | `0` | Bytes "
                        "of tensors that a rank may take. Only with recompute.mode = "
                        "\"budget\". |\n"));
  EXPECT_THAT(page, HasSubstr("| `batch` | a whole number, 1 or more | must be set | "));
  EXPECT_THAT(page, HasSubstr("Only where train.validate_every is not 0. |"));
}

}  // namespace
}  // namespace pipewright::config
