#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "pipewright/input/draw.h"
#include "pipewright/input/generated_clicks.h"
#include "pipewright/input/generated_images.h"
#include "pipewright/input/generated_pairs.h"
#include "pipewright/input/generated_segments.h"
#include "pipewright/input/metrics.h"
#include "pipewright/input/wordpiece.h"
#include "tests/input/folder.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using testing_input::Folder;

// ---- Area under the curve ----

double by_pairs(const std::vector<double>& scores, const std::vector<std::int64_t>& labels) {
  double won = 0;
  double pairs = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] != 1 || labels[j] != 0) continue;
      ++pairs;
      won += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  return won / pairs;
}

std::optional<double> auc(const std::vector<double>& scores,
                          const std::vector<std::int64_t>& labels) {
  return area_under_curve(scores, labels);
}

TEST(AreaUnderCurve, HasKnownValues) {
  EXPECT_EQ(auc({1, 2, 3, 4}, {0, 0, 1, 1}), 1);
  EXPECT_EQ(auc({4, 3, 2, 1}, {0, 0, 1, 1}), 0);
  EXPECT_EQ(auc({1, 1, 1, 1}, {0, 1, 0, 1}), 0.5);
  EXPECT_EQ(auc({0.1, 0.4, 0.35, 0.8}, {0, 0, 1, 1}), 0.75);
  EXPECT_EQ(auc({1, 2, 2, 3}, {0, 0, 1, 1}), 0.875);
}

TEST(AreaUnderCurve, IsTheShareOfPairsThatAreInOrder) {
  Draw draw(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> scores;
    std::vector<std::int64_t> labels = {0, 1};
    const std::int64_t size = 2 + draw.index(60);
    while (static_cast<std::int64_t>(labels.size()) < size) labels.push_back(draw.index(2));
    while (scores.size() < labels.size()) scores.push_back(static_cast<double>(draw.index(12)));
    EXPECT_DOUBLE_EQ(auc(scores, labels).value(), by_pairs(scores, labels));
  }
}

TEST(AreaUnderCurve, IsNoneWhereAllLabelsAreTheSame) {
  EXPECT_FALSE(auc({1, 2}, {1, 1}).has_value());
  EXPECT_FALSE(auc({1, 2}, {0, 0}).has_value());
  EXPECT_FALSE(auc({}, {}).has_value());
}

TEST(AreaUnderCurve, RefusesWhatItCannotRank) {
  EXPECT_EQ(refusal([] { auc({1, 2}, {1}); }), "[auc] 2 scores for 1 labels");
  EXPECT_EQ(refusal([] { auc({1, 2}, {1, 2}); }), "[auc] label 2 of row 1; use 0 and 1");
  EXPECT_EQ(refusal([] {
              auc({1, std::nan("")}, {1, 0});
            }),
            "[auc] the score of row 1 is no number");
}

// ---- Clicks ----

constexpr ClickLogOptions kLog = {.rows = 20000};

struct Judged {
  double best = 0;    // area under the curve of the true chances
  double single = 0;  // of the chances without interactions
};

Judged judge(const ClickLogOptions& options) {
  const GeneratedClicks log(options);
  std::vector<double> best;
  std::vector<double> single;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < log.size(); ++i) {
    const ClickRow row = log.row(i);
    best.push_back(log.probability(row));
    single.push_back(log.probability_without_interactions(row));
    labels.push_back(row.label > 0 ? 1 : 0);
  }
  return {auc(best, labels).value(), auc(single, labels).value()};
}

TEST(GeneratedClicks, CannotBePredictedWithoutInteractions) {
  const Judged judged = judge(kLog);
  EXPECT_GT(judged.best, 0.80);
  EXPECT_LT(judged.single, 0.62);
  EXPECT_GT(judged.single, 0.52);
  ClickLogOptions plain = kLog;
  plain.interactions = 0;
  const Judged without = judge(plain);
  EXPECT_DOUBLE_EQ(without.best, without.single);
}

// Neither field of a pair says anything by itself: the share of clicks is the same for each value.
TEST(GeneratedClicks, AFieldOfAPairSaysNothingByItself) {
  const GeneratedClicks log({.rows = 60000, .missing = 0});
  for (std::size_t field = 0; field < 6; ++field) {
    std::map<std::int64_t, std::array<double, 2>> clicks;
    for (std::int64_t i = 0; i < log.size(); ++i) {
      const ClickRow row = log.row(i);
      ++clicks[row.fields[field]][row.label > 0 ? 1 : 0];
    }
    ASSERT_EQ(clicks.size(), 20U);
    for (const auto& [value, count] : clicks) {
      EXPECT_NEAR(count[1] / (count[0] + count[1]), 0.5, 0.05) << field << " " << value;
    }
  }
}

TEST(GeneratedClicks, PartsOfALogFollowOneLaw) {
  ClickLogOptions options = kLog;
  options.rows = 100;
  const GeneratedClicks whole(options);
  options.rows = 50;
  options.first_row = 50;
  const GeneratedClicks part(options);
  for (std::int64_t i = 0; i < 50; ++i) EXPECT_EQ(part.tsv_line(i), whole.tsv_line(50 + i));
  EXPECT_NE(part.tsv_line(0), whole.tsv_line(0));
}

TEST(GeneratedClicks, AreReadBackAsAFileOfCriteo) {
  const Folder folder;
  const GeneratedClicks log({.rows = 200, .missing = 0.3});
  std::string text;
  for (std::int64_t i = 0; i < log.size(); ++i) text += log.tsv_line(i) + "\n";
  const CriteoFile file(folder.file("log.tsv", text),
                        {.numeric = 4, .fields = 8, .buckets = 100000, .logarithms = false});
  ASSERT_EQ(file.size(), 200);
  EXPECT_EQ(file.report().bad_rows, 0);
  for (std::int64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(file.row(i).label, log.row(i).label);
    EXPECT_EQ(file.row(i).numeric, log.row(i).numeric);
    for (std::size_t f = 0; f < 8; ++f) {
      EXPECT_EQ(file.row(i).fields[f] == 0, log.row(i).fields[f] == 0);
    }
  }
}

TEST(GeneratedClicks, RefuseSizesThatDoNotFit) {
  EXPECT_THAT(refusal([] { GeneratedClicks({.rows = 0}); }), HasSubstr("a click log of 0 rows"));
  EXPECT_THAT(refusal([] { GeneratedClicks({.rows = 1, .fields = 6}); }),
              HasSubstr("6 fields and 3 interactions"));
  EXPECT_EQ(refusal([] { GeneratedClicks({.rows = 1, .values = 3}); }),
            "[data] values = 3; use an even number: half of a field's values are good");
  EXPECT_EQ(refusal([] { GeneratedClicks({.rows = 1, .missing = 1}); }),
            "[data] missing = 1; use a share below 1");
}

// ---- Pairs ----

std::vector<std::string> split(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

TEST(GeneratedPairs, ASourceHasOneTarget) {
  const GeneratedPairs pairs(5000, 1);
  std::map<std::string, std::string> targets;
  for (std::int64_t i = 0; i < pairs.size(); ++i) {
    const SentencePair pair = pairs.pair(i);
    const auto [found, added] = targets.emplace(pair.source, pair.target);
    EXPECT_EQ(found->second, pair.target) << pair.source;
    EXPECT_EQ(split(pair.source).size(), split(pair.target).size()) << pair.source;
  }
  EXPECT_GT(targets.size(), 3000U);
}

TEST(GeneratedPairs, FollowTheirGrammar) {
  const GeneratedPairs pairs(20000, 1);
  std::map<std::string, std::string> targets;
  for (std::int64_t i = 0; i < pairs.size(); ++i) {
    targets[pairs.pair(i).source] = pairs.pair(i).target;
  }
  int known = 0;
  for (const auto& [source, target] :
       {std::pair("the child sees a boat", "la kido un barka vidar"),
        std::pair("the children see a boat", "la kidon un barka vidaren"),
        std::pair("two women buy the houses", "du feman la domon akiraren"),
        std::pair("an old baker has the table", "un pano vek la mensa tenar"),
        std::pair("the bakers have three red knives", "la panon tri kuton rujn tenaren")}) {
    if (!targets.contains(source)) continue;
    ++known;
    EXPECT_EQ(targets[source], target);
  }
  EXPECT_GE(known, 2);
}

TEST(GeneratedPairs, DependOnTheSeedAndTheNumberAlone) {
  EXPECT_EQ(GeneratedPairs(10, 3).pair(7).source, GeneratedPairs(99, 3).pair(7).source);
  EXPECT_NE(GeneratedPairs(10, 3).pair(7).source + GeneratedPairs(10, 3).pair(8).source,
            GeneratedPairs(10, 4).pair(7).source + GeneratedPairs(10, 4).pair(8).source);
  EXPECT_EQ(refusal([] { GeneratedPairs(0, 1); }), "[data] pairs = 0; use 1 or more");
}

// ---- Pictures ----

TEST(GeneratedImages, DependOnTheSeedAndTheNumberAlone) {
  const auto picture = [](std::int64_t images, std::uint64_t seed, std::int64_t image) {
    const GeneratedImages set(images, 3, 16, seed);
    std::vector<std::byte> bytes(set.image_bytes());
    set.read(image, bytes);
    return bytes;
  };
  EXPECT_EQ(picture(10, 1, 4), picture(20, 1, 4));
  EXPECT_NE(picture(10, 1, 4), picture(10, 1, 5));
  EXPECT_NE(picture(10, 1, 4), picture(10, 2, 4));
  EXPECT_EQ(picture(10, 1, 4).size(), 3U * 16 * 16);
}

TEST(GeneratedImages, HaveEveryClassAboutAsOften) {
  const GeneratedImages set(5000, 1, 8, 1);
  std::array<int, 10> counts{};
  for (std::int64_t i = 0; i < set.size(); ++i) ++counts.at(static_cast<std::size_t>(set.label(i)));
  for (const int count : counts) EXPECT_NEAR(count, 500, 100);
}

TEST(GeneratedImages, RefuseSizesThatDoNotFit) {
  EXPECT_EQ(
      refusal([] { GeneratedImages(5, 1, 4, 1); }),
      "[data] 5 pictures of 1 channels and 4 x 4; there must be one of each, and a size of 8");
}

TEST(GeneratedPairs, TheirVocabularyHasEveryWordWhole) {
  const WordPiece words(pair_vocabulary(), "made");
  const GeneratedPairs pairs(2000, 5);
  for (std::int64_t i = 0; i < pairs.size(); ++i) {
    for (const std::string& text : {pairs.pair(i).source, pairs.pair(i).target}) {
      const Tokens tokens = words.encode(text);
      EXPECT_EQ(tokens.size(), split(text).size()) << text;
      EXPECT_EQ(std::count(tokens.begin(), tokens.end(), words.unknown()), 0) << text;
    }
  }
}

// ---- Segments ----

struct Segmented {
  std::vector<std::byte> pixels;
  std::vector<std::uint8_t> classes;
};

Segmented read(const GeneratedSegments& images, std::int64_t image) {
  const auto [channels, height, width] = images.shape();
  Segmented one;
  one.pixels.resize(static_cast<std::size_t>(channels * height * width));
  one.classes.resize(static_cast<std::size_t>(height * width));
  images.read(image, one.pixels, one.classes);
  return one;
}

TEST(GeneratedSegments, DependOnTheSeedAndTheNumberAlone) {
  const GeneratedSegments images(10, 2, 16, 1);
  EXPECT_EQ(read(images, 3).pixels, read(GeneratedSegments(20, 2, 16, 1), 3).pixels);
  EXPECT_NE(read(images, 3).pixels, read(images, 4).pixels);
  EXPECT_NE(read(images, 3).classes, read(GeneratedSegments(10, 2, 16, 2), 3).classes);
  EXPECT_THAT(refusal([] { GeneratedSegments(1, 1, 7, 1); }), testing::HasSubstr("a size of 8"));
}

/// Else the brightness alone would tell them.
TEST(GeneratedSegments, DiscsAndSquaresAreAsLightAsEachOther) {
  const GeneratedSegments images(300, 1, 16, 1);
  std::array<double, 3> sum = {}, count = {};
  for (std::int64_t i = 0; i < images.size(); ++i) {
    const Segmented one = read(images, i);
    for (std::size_t k = 0; k < one.classes.size(); ++k) {
      sum.at(one.classes[k]) += std::to_integer<int>(one.pixels[k]);
      count.at(one.classes[k]) += 1;
    }
  }
  for (const double some : count) EXPECT_GT(some, 0.04 * 300 * 256);
  EXPECT_NEAR(sum[1] / count[1], sum[2] / count[2], 12);
}

}  // namespace
}  // namespace pipewright
