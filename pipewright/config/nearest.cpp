#include "pipewright/config/nearest.h"

#include <algorithm>

namespace pipewright::config {
namespace {

/// No name is that long: what is longer is near to none, and not worth the square of its length.
constexpr std::size_t kLongestWord = 64;

char plain(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '-' ? '_' : c;
}

}  // namespace

int edit_distance(std::string_view from, std::string_view to) {
  const std::size_t columns = to.size() + 1;
  std::vector<int> before(columns);  // the row of two letters ago
  std::vector<int> last(columns);
  std::vector<int> row(columns);
  for (std::size_t j = 0; j < columns; ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= from.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j < columns; ++j) {
      const bool same = plain(from[i - 1]) == plain(to[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && plain(from[i - 1]) == plain(to[j - 2]) &&
                           plain(from[i - 2]) == plain(to[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[to.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  if (word.size() > kLongestWord) return "";
  std::string best;
  // A third of the letters may be wrong: with more, what is suggested reads as a guess.
  int least = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& name : names) {
    const int distance = edit_distance(word, name);
    // A word of one letter is one exchange from every other of one letter.
    if (distance >= least || distance >= static_cast<int>(name.size())) continue;
    best = name;
    least = distance;
  }
  return best;
}

}  // namespace pipewright::config
