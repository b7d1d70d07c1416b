#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "pipewright/input/lines.h"

namespace pipewright {

/// A sentence and its translation.
struct SentencePair {
  std::string source;
  std::string target;
};

/// Sentences with their translations. Calls may come from several threads at once.
class PairSet {
 public:
  PairSet() = default;
  PairSet(const PairSet&) = delete;
  PairSet(PairSet&&) = delete;
  PairSet& operator=(const PairSet&) = delete;
  PairSet& operator=(PairSet&&) = delete;
  virtual ~PairSet() = default;

  virtual std::int64_t size() const = 0;
  virtual SentencePair pair(std::int64_t number) const = 0;
};

/// Two files of which line n of the one is the translation of line n of the other. Lines are read
/// when they are asked for.
class AlignedFiles final : public PairSet {
 public:
  /// Throws InvalidArgument where the files differ in lines, or have none.
  AlignedFiles(const std::string& source, const std::string& target);

  std::int64_t size() const override { return source_.size(); }
  SentencePair pair(std::int64_t number) const override {
    return {source_.line(number), target_.line(number)};
  }

 private:
  LineFile source_;
  LineFile target_;
};

}  // namespace pipewright
