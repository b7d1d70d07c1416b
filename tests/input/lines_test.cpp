#include "pipewright/input/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <vector>

#include "pipewright/input/pairs.h"
#include "tests/input/folder.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_input::Folder;

std::vector<std::string> lines_of(const std::string& text) {
  const Folder folder;
  const LineFile file(folder.file("text", text));
  std::vector<std::string> lines;
  for (std::int64_t i = 0; i < file.size(); ++i) lines.push_back(file.line(i));
  return lines;
}

TEST(LineFile, HasEveryLine) {
  EXPECT_THAT(lines_of(""), ElementsAre());
  EXPECT_THAT(lines_of("a"), ElementsAre("a"));
  EXPECT_THAT(lines_of("a\n"), ElementsAre("a"));
  EXPECT_THAT(lines_of("\n"), ElementsAre(""));
  EXPECT_THAT(lines_of("a\n\nb"), ElementsAre("a", "", "b"));
  EXPECT_THAT(lines_of("a\r\nb\r\n"), ElementsAre("a", "b"));
  EXPECT_THAT(lines_of(std::string("a\0b\nc", 5)), ElementsAre(std::string("a\0b", 3), "c"));
}

TEST(LineFile, ReadsAnyLineOfMany) {
  const Folder folder;
  std::string text;
  std::vector<std::string> lines;
  for (int i = 0; i < 1000; ++i) {
    lines.push_back(std::string(static_cast<std::size_t>(i % 7 == 0 ? 5000 : i % 50), 'x') +
                    std::to_string(i));
    text += lines.back() + "\n";
  }
  std::int64_t seen = 0;
  const LineFile file(folder.file("text", text), [&](std::int64_t number, std::string_view line) {
    EXPECT_EQ(number, seen++);
    EXPECT_EQ(line, lines[static_cast<std::size_t>(number)]);
  });
  EXPECT_EQ(seen, 1000);
  for (int i = 999; i >= 0; --i) ASSERT_EQ(file.line(i), lines[static_cast<std::size_t>(i)]);
}

// Lines that end at, before and after the ends of what is read at once.
TEST(LineFile, LinesMayEndAnywhere) {
  for (int shift = -2; shift <= 2; ++shift) {
    const std::string first(static_cast<std::size_t>((1 << 20) + shift), 'a');
    const std::string second(static_cast<std::size_t>(4096 + shift), 'b');
    EXPECT_THAT(lines_of(first + "\n" + second + "\n" + "c"), ElementsAre(first, second, "c"));
  }
}

TEST(LineFile, RefusesALineWithoutEnd) {
  const Folder folder;
  const std::string path = folder.file(
      "binary", "a\n" + std::string(static_cast<std::size_t>(kMostLineBytes) + (3 << 20), 'x'));
  EXPECT_EQ(folder.without(refusal([&] { LineFile{path}; })),
            "[data] 'binary' byte 2: a line of more than 16777216 bytes; this is no file of lines");
}

TEST(LineFile, SaysThatAFileWasCutShort) {
  const Folder folder;
  const std::string path = folder.file("text", "one\ntwo\nthree\n");
  const LineFile file(path);
  std::filesystem::resize_file(path, 3);
  EXPECT_THAT(refusal([&] { file.line(2); }), HasSubstr("it was longer when it was opened"));
}

TEST(DataFile, RefusesWhatIsNoFile) {
  const Folder folder;
  EXPECT_EQ(folder.without(refusal([&] { DataFile(folder.path("none")); })),
            "[data] cannot read 'none': No such file or directory; check the path");
  EXPECT_THAT(refusal([&] { DataFile(folder.path()); }), HasSubstr("it is no regular file"));
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal([&] { DataFile(folder.path("pipe")); }), HasSubstr("it is no regular file"));
}

TEST(DataFiles, AreSortedAndNotHidden) {
  const Folder folder;
  folder.file("b.txt", "");
  folder.file("a/2.txt", "");
  folder.file("a/10.txt", "");
  folder.file("c.npy", "");
  folder.file(".hidden", "");
  folder.file(".git/config.txt", "");
  std::vector<std::string> names;
  for (const std::string& path : data_files(folder.path())) names.push_back(folder.without(path));
  EXPECT_THAT(names, ElementsAre("a/10.txt", "a/2.txt", "b.txt", "c.npy"));
  EXPECT_THAT(data_files(folder.path(), ".npy"), ElementsAre(folder.path("c.npy")));
  EXPECT_THAT(data_files(folder.path("b.txt")), ElementsAre(folder.path("b.txt")));
  EXPECT_EQ(refusal([&] { data_files(folder.path(), ".bin"); }),
            "[data] the folder '" + folder.path() + "' has no file *.bin; check the path");
}

TEST(AlignedFiles, PairTheirLines) {
  const Folder folder;
  const AlignedFiles pairs(folder.file("en", "one\ntwo\n"), folder.file("de", "eins\nzwei"));
  EXPECT_EQ(pairs.size(), 2);
  EXPECT_EQ(pairs.pair(1).source, "two");
  EXPECT_EQ(pairs.pair(1).target, "zwei");
}

TEST(AlignedFiles, RefuseFilesThatAreNotAligned) {
  const Folder folder;
  const std::string three = folder.file("en", "one\ntwo\nthree\n");
  const std::string two = folder.file("de", "eins\nzwei\n");
  const std::string empty = folder.file("empty", "");
  EXPECT_EQ(folder.without(refusal([&] { AlignedFiles(three, two); })),
            "[data] 'en' has 3 lines, 'de' 2; line n of the one must be the translation of line n "
            "of the other");
  EXPECT_EQ(folder.without(refusal([&] { AlignedFiles(empty, empty); })),
            "[data] 'empty' and 'empty' are empty");
}

}  // namespace
}  // namespace pipewright
