#include "pipewright/input/wordpiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/input/sentences.h"
#include "tests/input/folder.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_input::Folder;

const std::string kSpecials = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

WordPiece with(const std::string& pieces, const WordPieceOptions& options = {}) {
  return {kSpecials + pieces, "vocab.txt", options};
}

/// The pieces of a text, with spaces between; those after a word's first are joined to it.
std::string pieces(const WordPiece& vocabulary, std::string_view text) {
  std::string joined;
  for (const std::int32_t token : vocabulary.encode(text)) {
    joined += (joined.empty() ? "" : "|") + vocabulary.decode(Tokens{token});
  }
  return joined;
}

std::vector<std::string> words(std::string_view text, bool lower_case = true) {
  const WordPiece vocabulary = with("", {.lower_case = lower_case});
  std::vector<std::string> words;
  for (const CodePoints& word : vocabulary.words(text)) words.push_back(encode_utf8(word));
  return words;
}

// ---- Words: the cases that BERT's own description of its tokenizer gives ----

TEST(Words, EndAtSpacesOfAllKinds) {
  EXPECT_THAT(words(" hello \t world\r\n"), ElementsAre("hello", "world"));
  EXPECT_THAT(words("a\u00a0b\u2003c\u3000d"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(words(""), ElementsAre());
  EXPECT_THAT(words(" \n "), ElementsAre());
}

TEST(Words, AreInLowerCaseWithoutAccents) {
  EXPECT_THAT(words(" \tHeLLo!how  \n Are yoU?  "),
              ElementsAre("hello", "!", "how", "are", "you", "?"));
  EXPECT_THAT(words("H\u00e9llo"), ElementsAre("hello"));
  EXPECT_THAT(words("\u00c4\u00d6\u00dc\u00df \u0130stanbul \u0395\u03bb\u03bb\u03ac\u03c2"),
              ElementsAre("aou\u00df", "istanbul", "\u03b5\u03bb\u03bb\u03b1\u03c2"));
  EXPECT_THAT(words("e\u0301"), ElementsAre("e"));                    // an accent of its own
  EXPECT_THAT(words("\u1ea4n \u0419"), ElementsAre("an", "\u0438"));  // two accents; Cyrillic
}

TEST(Words, KeepCaseAndAccentsWhereAsked) {
  EXPECT_THAT(words("H\u00e9LLo!", false), ElementsAre("H\u00e9LLo", "!"));
}

TEST(Words, HavePunctuationAlone) {
  EXPECT_THAT(words("don't $5,00 a_b ^x~"),
              ElementsAre("don", "'", "t", "$", "5", ",", "00", "a", "_", "b", "^", "x", "~"));
  EXPECT_THAT(words("\u201eso\u201c \u2014 \u00bfqu\u00e9? \u3002"),
              ElementsAre("\u201e", "so", "\u201c", "\u2014", "\u00bf", "que", "?", "\u3002"));
}

TEST(Words, HaveIdeographsAlone) {
  EXPECT_THAT(words("ah\u535a\u63a8zz"), ElementsAre("ah", "\u535a", "\u63a8", "zz"));
  EXPECT_THAT(words("\U00020000x\u3042\u3044"), ElementsAre("\U00020000", "x\u3042\u3044"));
  EXPECT_THAT(words("\uf900"), ElementsAre("\u8c48"));  // a compatibility form
  EXPECT_THAT(words("\uf900", false), ElementsAre("\uf900"));
}

TEST(Words, LeaveOutWhatIsNoText) {
  EXPECT_THAT(words(std::string_view("a\0b\x01\x7f"
                                     "c",
                                     6)),
              ElementsAre("abc"));
  EXPECT_THAT(words("a\u200bb\ufeff\u00adc"), ElementsAre("abc"));  // of no width: Cf
  EXPECT_THAT(words("a\xff\xc3"
                    "b\ufffd"),
              ElementsAre("ab"));  // no UTF-8
}

// ---- Pieces ----

TEST(WordPieces, AreTheLongestFromTheStartOn) {
  const WordPiece vocabulary = with("want\n##want\n##ed\nwa\nun\nrunn\n##ing\n");
  EXPECT_EQ(pieces(vocabulary, "unwanted running"), "un|want|ed|runn|ing");
  EXPECT_THAT(vocabulary.encode("unwanted"), ElementsAre(9, 6, 7));
  EXPECT_EQ(pieces(vocabulary, "unwantedX running"), "[UNK]|runn|ing");
  EXPECT_EQ(pieces(vocabulary, ""), "");
}

TEST(WordPieces, AreNotTriedAgainShorter) {
  // "abc" + "d" fails, and so does the word, though "ab" + "cd" would do.
  EXPECT_EQ(pieces(with("abc\nab\n##cd\n"), "abcd"), "[UNK]");
}

TEST(WordPieces, StandEitherFirstOrLater) {
  EXPECT_EQ(pieces(with("##a\n"), "a"), "[UNK]");
  EXPECT_EQ(pieces(with("a\n"), "aa"), "[UNK]");
  EXPECT_EQ(pieces(with("a\n##a\n"), "aaa"), "a|a|a");
}

TEST(WordPieces, MayBeOfSeveralBytesACharacter) {
  const WordPiece vocabulary = with("\u0438\n##\u0436\u0435\n\u535a\n");
  EXPECT_EQ(pieces(vocabulary, "\u0418\u0436\u0435\u535a"), "\u0438|\u0436\u0435|\u535a");
  EXPECT_EQ(pieces(vocabulary, "\u0438\u0436"), "[UNK]");
}

TEST(WordPieces, AreUnknownInWordsThatAreTooLong) {
  const WordPiece vocabulary = with("a\n##a\n", {.most_characters = 4});
  EXPECT_EQ(pieces(vocabulary, "aaaa"), "a|a|a|a");
  EXPECT_EQ(pieces(vocabulary, "aaaaa a"), "[UNK]|a");
  const WordPiece usual = with("a\n##a\n");
  EXPECT_EQ(usual.encode(std::string(100, 'a')).size(), 100U);
  EXPECT_THAT(usual.encode(std::string(101, 'a')), ElementsAre(usual.unknown()));
}

TEST(WordPieces, SpecialWordsAreTextLikeAnyOther) {
  const WordPiece vocabulary = with("[\n]\nsep\n");
  EXPECT_EQ(pieces(vocabulary, "[SEP]"), "[|sep|]");
  for (const char* name : {"[PAD]", "[CLS]", "[SEP]", "[MASK]"}) {
    for (const std::int32_t token : vocabulary.encode(name)) {
      EXPECT_TRUE(token == vocabulary.unknown() || !vocabulary.is_special(token)) << name;
    }
  }
}

TEST(WordPieces, AreJoinedForPeople) {
  const WordPiece vocabulary = with("un\n##aff\n##able\n,\n");
  EXPECT_EQ(vocabulary.decode(vocabulary.encode("Unaffable, un")), "unaffable , un");
  EXPECT_EQ(refusal([&] { vocabulary.decode(Tokens{-1}); }),
            "[vocabulary] token -1 is none of 0 to 8");
}

// ---- Vocabularies ----

TEST(Vocabulary, TokensAreLines) {
  const WordPiece vocabulary = with("a\r\n##b\r\n#\n##");
  EXPECT_EQ(vocabulary.size(), 9);
  EXPECT_EQ(vocabulary.pad(), 0);
  EXPECT_EQ(vocabulary.unknown(), 1);
  EXPECT_EQ(vocabulary.begin(), 2);
  EXPECT_EQ(vocabulary.end(), 3);
  EXPECT_EQ(vocabulary.mask(), 4);
  EXPECT_THAT(vocabulary.encode("ab #"), ElementsAre(5, 6, 7));
}

TEST(Vocabulary, IsReadFromAFile) {
  const Folder folder;
  EXPECT_EQ(WordPiece::load(folder.file("vocab.txt", kSpecials + "a\n")).size(), 6);
  EXPECT_THAT(refusal([&] { WordPiece::load(folder.path("none.txt")); }),
              HasSubstr("none.txt': No such file or directory"));
}

TEST(VocabularyRefuses, DamagedLines) {
  EXPECT_EQ(refusal([] { with("a\n\nb\n"); }),
            "[vocabulary] 'vocab.txt' line 7: it is empty; a line is a piece of a word");
  EXPECT_EQ(refusal([] { with("a\nb\na\n"); }),
            "[vocabulary] 'vocab.txt' line 8: \"a\" stands in line 6 already");
  EXPECT_EQ(refusal([] { with("a\xff\n"); }),
            "[vocabulary] 'vocab.txt' line 6: no UTF-8 at its byte 1");
  EXPECT_EQ(refusal([] { with("", {.most_characters = 0}); }),
            "[vocabulary] words of at most 0 characters; use 1 or more");
}

TEST(VocabularyRefuses, ToBeWithoutItsSpecialTokens) {
  EXPECT_EQ(refusal([] { WordPiece("[PAD]\n[CLS]\n[MASK]\nx\n", "v"); }),
            "[vocabulary] 'v' with its 4 lines has no line [UNK] [SEP]; add it");
  EXPECT_THAT(refusal([] { WordPiece("", "v"); }), HasSubstr("[PAD] [UNK] [CLS] [SEP] [MASK]"));
}

// ---- The made vocabulary ----

TEST(SentenceVocabulary, HasEveryWordOfTheMadeText) {
  const WordPiece vocabulary(sentence_vocabulary(), "made");
  TextGenerator generator(1);
  for (int i = 0; i < 3000; ++i) {
    const std::string sentence = generator.sentence();
    const Tokens tokens = vocabulary.encode(sentence);
    ASSERT_EQ(tokens.size(), vocabulary.words(sentence).size()) << sentence;
    for (const std::int32_t token : tokens) ASSERT_FALSE(vocabulary.is_special(token)) << sentence;
  }
  EXPECT_EQ(pieces(vocabulary, "Zebra7"), "z|e|b|r|a|7");
}

TEST(SentenceTokens, AreAsManyAsWantedAndEnd) {
  const WordPiece vocabulary(sentence_vocabulary(), "made");
  const Tokens tokens = sentence_tokens(vocabulary, 500, 3);
  EXPECT_GE(tokens.size(), 500U);
  EXPECT_LT(tokens.size(), 540U);
  EXPECT_EQ(tokens.back(), vocabulary.end());
  EXPECT_EQ(tokens, sentence_tokens(vocabulary, 500, 3));
  EXPECT_NE(tokens, sentence_tokens(vocabulary, 500, 4));
}

}  // namespace
}  // namespace pipewright
