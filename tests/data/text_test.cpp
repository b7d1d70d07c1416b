#include "pipewright/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

std::string sentences(std::uint64_t seed, int count) {
  TextGenerator generator(seed);
  std::string text;
  for (int i = 0; i < count; ++i) text += generator.sentence();
  return text;
}

TEST(CharVocabulary, GivesBackWhatItWasGiven) {
  const CharVocabulary vocabulary("abc \n");
  EXPECT_EQ(vocabulary.size(), 5);
  EXPECT_THAT(vocabulary.encode("cab\n"), testing::ElementsAre(2, 0, 1, 4));
  EXPECT_EQ(vocabulary.decode(vocabulary.encode("a cab\n")), "a cab\n");
}

TEST(CharVocabulary, RefusesWhatItDoesNotHave) {
  const CharVocabulary vocabulary("abc");
  EXPECT_EQ(refusal([&] { vocabulary.encode("abd"); }),
            "[vocabulary] character 'd', at 2 of the text, is none of its 3");
  EXPECT_THAT(refusal([&] { vocabulary.encode("\xff"); }), HasSubstr("is none of its 3"));
  EXPECT_EQ(refusal([&] { vocabulary.decode({0, 3}); }), "[vocabulary] token 3 is none of 0 to 2");
  EXPECT_EQ(refusal([&] { vocabulary.decode({-1}); }), "[vocabulary] token -1 is none of 0 to 2");
}

TEST(CharVocabulary, RefusesToBeAmbiguousOrEmpty) {
  EXPECT_EQ(refusal([] { CharVocabulary("aba"); }),
            "[vocabulary] character 'a' stands there twice, at 0 and at 2");
  EXPECT_EQ(refusal([] { CharVocabulary(""); }), "[vocabulary] it has no characters");
}

TEST(TextGenerator, WritesTheSameForTheSameSeed) {
  EXPECT_EQ(sentences(7, 100), sentences(7, 100));
  EXPECT_NE(sentences(7, 100), sentences(8, 100));
}

// The text is part of what a run's results depend on: it may not change by accident.
TEST(TextGenerator, WritesTheseSentencesForSeedOne) {
  EXPECT_EQ(sentences(1, 4),
            "Count from seven: seven, eight, nine, ten, eleven.\n"
            "Count from nine: nine, ten, eleven.\n"
            "Count from five: five, six, seven.\n"
            "The boys see eight old bridges.\n");
}

TEST(TextGenerator, WritesTrueSentencesThatAgree) {
  const std::string text = sentences(3, 5000);
  for (const char* right :
       {"Two plus three is five.\n", "Nine plus nine is eighteen.\n", "An honest ", "An old ",
        " an umbrella", "Count from zero: zero, one", " children carry ", " child carries "}) {
    EXPECT_THAT(text, HasSubstr(right));
  }
  for (const char* wrong : {"A old", "A honest", " a umbrella", " child carry", "children carries",
                            "Two plus two is five", " an red"}) {
    EXPECT_THAT(text, testing::Not(HasSubstr(wrong)));
  }
}

TEST(TextGenerator, WritesWithinItsVocabulary) {
  const CharVocabulary vocabulary = text_vocabulary();
  const std::string text = sentences(5, 5000);
  EXPECT_EQ(vocabulary.decode(vocabulary.encode(text)), text);
}

TEST(TextSampler, DependsOnSeedAndStepAlone) {
  const TextSampler one(4, 50, 1);
  const TextSampler same(4, 50, 1);
  const TokenBatch first = one.batch(3);
  one.batch(4);
  EXPECT_TRUE(one.batch(3).inputs.equal(first.inputs));
  EXPECT_TRUE(same.batch(3).targets.equal(first.targets));
  EXPECT_FALSE(one.batch(4).inputs.equal(first.inputs));
  EXPECT_FALSE(TextSampler(4, 50, 2).batch(3).inputs.equal(first.inputs));
}

TEST(TextSampler, RowsDiffer) {
  const TokenBatch batch = TextSampler(8, 40, 1).batch(0);
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < a; ++b) EXPECT_FALSE(batch.inputs[a].equal(batch.inputs[b])) << a << b;
  }
}

TEST(TextSampler, TargetsAreTheNextTokens) {
  const TokenBatch batch = TextSampler(3, 60, 9).batch(2);
  EXPECT_EQ(batch.inputs.sizes(), torch::IntArrayRef({3, 60}));
  EXPECT_EQ(batch.targets.sizes(), torch::IntArrayRef({3, 60}));
  EXPECT_EQ(batch.inputs.scalar_type(), torch::kInt64);
  EXPECT_TRUE(batch.targets.slice(1, 0, 59).equal(batch.inputs.slice(1, 1)));
}

TEST(TextSampler, RowsAreTextInTheVocabulary) {
  const TextSampler sampler(2, 200, 4);
  const auto row = sampler.batch(0).inputs[1].contiguous();
  const std::vector<std::int64_t> tokens(row.data_ptr<std::int64_t>(),
                                         row.data_ptr<std::int64_t>() + row.numel());
  EXPECT_THAT(sampler.vocabulary().decode(tokens), HasSubstr(".\n"));
}

TEST(TextSampler, RefusesEmptyBatches) {
  EXPECT_EQ(refusal([] { TextSampler(0, 5, 1); }), "[text] rows = 0; use 1 or more");
  EXPECT_EQ(refusal([] { TextSampler(5, -1, 1); }), "[text] length = -1; use 1 or more");
}

}  // namespace
}  // namespace pipewright
