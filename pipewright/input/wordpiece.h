#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pipewright/input/tokenizer.h"
#include "pipewright/input/unicode.h"

namespace pipewright {

struct WordPieceOptions {
  bool lower_case = true;  // and without accents, as BERT's uncased vocabularies want it
  std::int64_t most_characters = 100;  // of a word; longer ones are unknown
};

/// Text as pieces of words from a vocabulary, as BERT does it:
///
///     Unaffable, naïve!  -->  un ##aff ##able , naive !
///
/// Characters that are no text (controls, U+FFFD) are left out; words end at spaces, punctuation
/// and ideographs, the latter two being words of their own; a word's pieces are the longest ones of
/// the vocabulary, from its start on, those after the first written ##piece. A word that is not
/// made of pieces, or too long, is [UNK]. Words in brackets, such as [SEP], are plain text here.
/// Lower case goes by character, without regard to where in a word it stands (the Greek final s).
class WordPiece final : public Tokenizer {
 public:
  /// From the text of a vocab.txt: a piece a line, which line being its token. `path` is for
  /// errors. Throws InvalidArgument with the line: an empty one, one that stood there before, no
  /// UTF-8; and where [PAD], [UNK], [CLS], [SEP] or [MASK] is missing.
  WordPiece(std::string_view vocabulary, const std::string& path,
            const WordPieceOptions& options = {});

  /// Reads the file.
  static WordPiece load(const std::string& path, const WordPieceOptions& options = {});

  std::int64_t size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  Tokens encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int32_t pad() const override { return pad_; }
  std::int32_t begin() const override { return begin_; }
  std::int32_t end() const override { return end_; }
  std::int32_t mask() const override { return mask_; }
  std::int32_t unknown() const { return unknown_; }
  bool is_special(std::int32_t token) const override;

  /// The words of a text, before they are cut into pieces.
  std::vector<CodePoints> words(std::string_view text) const;

 private:
  void add_line(std::string_view line, const std::string& path);
  void find_specials(const std::string& path);
  void cut(const CodePoints& word, Tokens* tokens) const;

  WordPieceOptions options_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, std::int32_t> first_pieces_;  // that begin a word
  std::unordered_map<std::string, std::int32_t> later_pieces_;  // without their ##
  std::size_t longest_ = 0;                                     // bytes of a piece
  std::int32_t pad_ = -1;
  std::int32_t unknown_ = -1;
  std::int32_t begin_ = -1;
  std::int32_t end_ = -1;
  std::int32_t mask_ = -1;
};

}  // namespace pipewright
