#include "pipewright/input/python_literal.h"

#include <fmt/format.h>

#include <charconv>

#include "pipewright/input/file.h"

namespace pipewright {

char PythonReader::peek() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool PythonReader::take(char wanted) {
  if (peek() != wanted) return false;
  ++at_;
  return true;
}

void PythonReader::expect(char wanted) {
  if (!take(wanted)) refuse(fmt::format("'{}' is missing", wanted));
}

void PythonReader::expect_end() {
  peek();
  if (at_ < text_.size()) refuse("the header goes on after its dictionary");
}

std::string PythonReader::string() {
  const char quote = peek();
  if (quote != '\'' && quote != '"') refuse("a text in quotes is missing");
  const std::size_t end = text_.find(quote, at_ + 1);
  if (end == std::string_view::npos) refuse("a text without its closing quote");
  const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
  if (inside.find('\\') != std::string_view::npos) refuse("a text with an escape");
  at_ = end + 1;
  return std::string(inside);
}

bool PythonReader::boolean() {
  peek();
  for (const std::string_view word : {"True", "False"}) {
    if (!text_.substr(at_).starts_with(word)) continue;
    at_ += word.size();
    return word == "True";
  }
  refuse("True or False is missing");
}

std::int64_t PythonReader::integer() {
  peek();
  std::int64_t value = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error == std::errc::result_out_of_range) refuse("a number of more than 63 bits");
  if (error != std::errc()) refuse("a whole number is missing");
  if (value < 0) refuse(fmt::format("a size of {}", value));
  at_ += static_cast<std::size_t>(end - begin);
  if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote 3L
  return value;
}

std::vector<std::int64_t> PythonReader::integers() {
  std::vector<std::int64_t> numbers;
  expect('(');
  while (!take(')')) {
    numbers.push_back(integer());
    if (!take(',') && peek() != ')') refuse("',' or ')' is missing");
  }
  return numbers;
}

void PythonReader::refuse(std::string_view why) const {
  refuse_data(path_, start_ + static_cast<std::int64_t>(at_), why);
}

}  // namespace pipewright
