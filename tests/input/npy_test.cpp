#include "pipewright/input/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/input/folder.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_input::Folder;

/// A file by hand: `version` 1 to 3, the dictionary padded as numpy does it.
std::string npy(int version, std::string dictionary, std::string_view data) {
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  while ((8 + length_bytes + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (std::size_t i = 0; i < length_bytes; ++i) {
    file += static_cast<char>(dictionary.size() >> (8 * i) & 0xff);
  }
  return file + dictionary + std::string(data);
}

std::string dict(std::string_view descr, std::string_view fortran, std::string_view shape) {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(fortran) +
         ", 'shape': " + std::string(shape) + ", }";
}

template <typename T>
std::string raw(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), std::data(values), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> row(const ArrayFile& array, std::int64_t number) {
  std::vector<T> values(static_cast<std::size_t>(array.row_bytes()) / sizeof(T));
  array.read(number, std::as_writable_bytes(std::span(values)));
  return values;
}

/// What a file is refused with, its name left out.
std::string refused(const std::string& contents) {
  const Folder folder;
  const std::string path = folder.file("a.npy", contents);
  return folder.without(refusal([&] { open_npy(path); }));
}

TEST(Npy, ReadsRowsOfEveryVersion) {
  const Folder folder;
  for (int version = 1; version <= 3; ++version) {
    const ArrayFile array =
        open_npy(folder.file("a.npy", npy(version, dict("<f4", "False", "(2, 3)"),
                                          raw<float>({1.5F, 2, 3, 4, 5, -6.25F}))));
    EXPECT_EQ(array.rows(), 2);
    EXPECT_EQ(array.dtype(), DType::kF32);
    EXPECT_THAT(array.row_shape(), ElementsAre(3));
    EXPECT_THAT(row<float>(array, 0), ElementsAre(1.5F, 2, 3));
    EXPECT_THAT(row<float>(array, 1), ElementsAre(4, 5, -6.25F));
  }
}

// The bytes that numpy.save writes for numpy.array([[1, 2], [3, 4]], dtype='<i2').
TEST(Npy, ReadsAFileOfNumpy) {
  const Folder folder;
  std::string file("\x93NUMPY\x01\x00\x76\x00", 10);
  file += "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 2), }";
  file.resize(127, ' ');
  file += std::string("\n\x01\x00\x02\x00\x03\x00\x04\x00", 9);
  const ArrayFile array = open_npy(folder.file("a.npy", file));
  EXPECT_THAT(row<std::int16_t>(array, 1), ElementsAre(3, 4));
  EXPECT_EQ(npy_head(array.layout()), file.substr(0, 128));
}

TEST(Npy, TurnsFortransOrderAround) {
  const Folder folder;
  // a[i][j][k] = 100 i + 10 j + k of shape (2, 3, 2), the first index fastest.
  std::string data;
  for (int k = 0; k < 2; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) data += raw<std::int32_t>({100 * i + 10 * j + k});
    }
  }
  const ArrayFile array =
      open_npy(folder.file("a.npy", npy(1, dict("<i4", "True", "(2, 3, 2)"), data)));
  EXPECT_THAT(row<std::int32_t>(array, 0), ElementsAre(0, 1, 10, 11, 20, 21));
  EXPECT_THAT(row<std::int32_t>(array, 1), ElementsAre(100, 101, 110, 111, 120, 121));
}

TEST(Npy, OneDimensionIsTheSameInBothOrders) {
  const Folder folder;
  const ArrayFile array = open_npy(
      folder.file("a.npy", npy(1, dict("<i4", "True", "(3,)"), raw<std::int32_t>({7, 8, 9}))));
  EXPECT_THAT(row<std::int32_t>(array, 2), ElementsAre(9));
}

TEST(Npy, ReadsEitherByteOrder) {
  const Folder folder;
  const auto open = [&](const char* descr, std::string_view bytes) {
    return open_npy(folder.file("a.npy", npy(1, dict(descr, "False", "(1,)"), bytes)));
  };
  using namespace std::string_view_literals;
  EXPECT_THAT(row<std::int16_t>(open(">i2", "\x01\x02"sv), 0), ElementsAre(0x0102));
  EXPECT_THAT(row<std::int32_t>(open(">i4", "\x01\x02\x03\x04"sv), 0), ElementsAre(0x01020304));
  EXPECT_THAT(row<double>(open(">f8", "\x3f\xf8\0\0\0\0\0\0"sv), 0), ElementsAre(1.5));
  EXPECT_THAT(row<std::int64_t>(open("<i8", "\xfe\xff\xff\xff\xff\xff\xff\xff"sv), 0),
              ElementsAre(-2));
}

TEST(Npy, HasEveryTypeOfNumber) {
  const Folder folder;
  struct Case {
    const char* descr;
    std::size_t bytes;
    DType read_as;
  };
  for (const Case& c :
       {Case{"|b1", 1, DType::kBool}, Case{"|i1", 1, DType::kI8}, Case{"|u1", 1, DType::kU8},
        Case{"<i2", 2, DType::kI16}, Case{"<u2", 2, DType::kI32}, Case{"<f2", 2, DType::kF16},
        Case{"<i4", 4, DType::kI32}, Case{"<u4", 4, DType::kI64}, Case{"<f4", 4, DType::kF32},
        Case{"<i8", 8, DType::kI64}, Case{"<u8", 8, DType::kI64}, Case{"<f8", 8, DType::kF64}}) {
    const std::string file = npy(1, dict(c.descr, "False", "(3,)"), std::string(3 * c.bytes, '\1'));
    EXPECT_EQ(open_npy(folder.file("a.npy", file)).dtype(), c.read_as) << c.descr;
  }
}

TEST(Npy, UnsignedNumbersKeepTheirValue) {
  const Folder folder;
  const auto open = [&](const char* descr, const std::string& bytes) {
    return open_npy(folder.file("a.npy", npy(1, dict(descr, "False", "(1, 2)"), bytes)));
  };
  EXPECT_THAT(row<std::int32_t>(open("<u2", raw<std::uint16_t>({65535, 1})), 0),
              ElementsAre(65535, 1));
  EXPECT_THAT(row<std::int64_t>(open("<u4", raw<std::uint32_t>({4294967295U, 1})), 0),
              ElementsAre(4294967295, 1));
  EXPECT_THAT(row<std::int64_t>(open("<u8", raw<std::uint64_t>({1ULL << 62, 3})), 0),
              ElementsAre(std::int64_t{1} << 62, 3));
  const ArrayFile large = open("<u8", raw<std::uint64_t>({1, 1ULL << 63}));
  EXPECT_EQ(folder.without(refusal([&] { row<std::int64_t>(large, 0); })),
            "[data] 'a.npy' row 0, element 1: a number of 2^63 or more does not fit a tensor");
}

TEST(Npy, TakesWhatPythonMayWrite) {
  const Folder folder;
  const auto shape = [&](std::string dictionary, std::size_t bytes) {
    return open_npy(folder.file("a.npy", npy(1, std::move(dictionary), std::string(bytes, 'x'))))
        .layout()
        .shape;
  };
  EXPECT_THAT(shape("{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}", 24),
              ElementsAre(2, 3));
  EXPECT_THAT(shape("{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 3L , ) }", 12),
              ElementsAre(3));
  EXPECT_THAT(shape(dict("<f4", "False", "(3, 0)"), 0), ElementsAre(3, 0));
}

TEST(Npy, ReadsBackWhatItsHeadersSay) {
  for (const DType dtype : {DType::kF64, DType::kU8, DType::kBool}) {
    for (const bool column_major : {false, true}) {
      for (const std::vector<std::int64_t>& shape :
           {std::vector<std::int64_t>{3}, {2, 5}, {1, 2, 3, 4}, {}}) {
        ArrayLayout layout{dtype, false, column_major, shape, 0};
        const std::string head = npy_head(layout);
        EXPECT_EQ(head.size() % 64, 0U);
        layout.data_start = static_cast<std::int64_t>(head.size());
        std::int64_t elements = 1;
        for (const std::int64_t size : shape) elements *= size;
        EXPECT_EQ(parse_npy_header(head, layout.data_start + elements * dtype_bytes(dtype), "a"),
                  layout);
      }
    }
  }
}

TEST(NpyRefuses, FilesThatAreNone) {
  EXPECT_EQ(refused(""), "[data] 'a.npy' byte 0: this is no .npy file: it has other first bytes");
  EXPECT_THAT(refused("\x1f\x8b\x08 and more"), HasSubstr("compressed by gzip"));
  EXPECT_THAT(refused("PK\x03\x04 and more"), HasSubstr(".npz archive"));
  EXPECT_EQ(refused("\x93NUMPY"), "[data] 'a.npy' byte 6: the file ends within its header");
  EXPECT_EQ(
      refused(npy(4, dict("<f4", "False", "(1,)"), "1234")),
      "[data] 'a.npy' byte 6: version 4.0 of the format; versions 1.0, 2.0 and 3.0 are known");
}

TEST(NpyRefuses, EveryFileThatWasCutShort) {
  const std::string whole = npy(2, dict("<f4", "False", "(2, 3)"), std::string(24, 'x'));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(refused(whole.substr(0, size)), HasSubstr("[data] 'a.npy' byte ")) << size;
  }
  EXPECT_EQ(refused(whole), "accepted");
  EXPECT_EQ(refused(whole.substr(0, whole.size() - 1)),
            "[data] 'a.npy' byte 151: the file ends here, with 23 of the array's 24 bytes; it was "
            "cut short");
  EXPECT_EQ(refused(whole + "y"),
            "[data] 'a.npy' byte 152: the array ends here; 1 bytes follow it");
}

TEST(NpyRefuses, HeadersThatLie) {
  const auto with = [](std::string_view descr, std::string_view fortran, std::string_view shape) {
    return refused(npy(1, dict(descr, fortran, shape), "12345678"));
  };
  EXPECT_THAT(with("<f4", "False", "(-2,)"), HasSubstr("a size of -2"));
  EXPECT_THAT(with("<f4", "False", "(99999999999999999999,)"), HasSubstr("more than 63 bits"));
  EXPECT_THAT(with("<f8", "False", "(4611686018427387904, 4)"), HasSubstr("than can be counted"));
  EXPECT_THAT(with("<f4", "False", "(2 3)"), HasSubstr("',' or ')' is missing"));
  EXPECT_THAT(with("<f4", "False", "2"), HasSubstr("'(' is missing"));
  EXPECT_THAT(with("<f4", "false", "(2,)"), HasSubstr("True or False is missing"));
  EXPECT_THAT(with("|O", "False", "(1,)"), HasSubstr("elements of type '|O'"));
  EXPECT_THAT(with("<c8", "False", "(1,)"), HasSubstr("elements of type '<c8'"));
  EXPECT_THAT(with("|f4", "False", "(2,)"), HasSubstr("elements of type '|f4'"));
  EXPECT_THAT(with("", "False", "(2,)"), HasSubstr("elements of type ''"));
  EXPECT_EQ(with("<f8", "False", "()"),
            "[data] 'a.npy' holds one number, not an array with rows; save it with at least one "
            "dimension");
}

TEST(NpyRefuses, DictionariesThatAreNone) {
  const auto with = [](const std::string& text) { return refused(npy(1, text, "1234")); };
  EXPECT_EQ(with("'descr'"), "[data] 'a.npy' byte 10: '{' is missing");
  EXPECT_THAT(with("{'descr': [('x', '<f4')], }"), HasSubstr("a structured array"));
  EXPECT_THAT(with("{'descr': '<f4', 'shape': (1,), }"), HasSubstr("must all be there"));
  EXPECT_THAT(with("{'descr': '<f4', 'descr': '<f4'}"), HasSubstr("'descr' for the second time"));
  EXPECT_THAT(with("{'order': 1}"), HasSubstr("'order' is none of descr, fortran_order and shape"));
  EXPECT_THAT(with("{'descr': '<f4}"), HasSubstr("without its closing quote"));
  EXPECT_THAT(with("{'de\\x73cr': 1}"), HasSubstr("a text with an escape"));
  EXPECT_THAT(with(dict("<f4", "False", "(1,)") + " x"), HasSubstr("goes on after its dictionary"));
}

TEST(NpyRefuses, HeadersOfAnyLength) {
  std::string file = npy(2, dict("<f4", "False", "(1,)"), "1234");
  file[11] = '\x7f';  // two gigabytes
  EXPECT_THAT(refused(file), HasSubstr("beyond the 65536 that are allowed"));
  file[11] = '\0';
  file[9] = '\x7f';
  EXPECT_THAT(refused(file), HasSubstr("the header claims to end at byte"));
}

TEST(NpyWriter, WritesWhatIsReadBack) {
  const Folder folder;
  NpyWriter writer(folder.path("tokens.npy"));
  writer.append(std::vector<std::int32_t>{1, 2, 3});
  writer.append(std::vector<std::int32_t>{-4});
  EXPECT_FALSE(std::filesystem::exists(folder.path("tokens.npy")));
  writer.finish();
  const ArrayFile array = open_npy(folder.path("tokens.npy"));
  EXPECT_EQ(array.rows(), 4);
  EXPECT_THAT(row<std::int32_t>(array, 2), ElementsAre(3));
  EXPECT_THAT(row<std::int32_t>(array, 3), ElementsAre(-4));
  EXPECT_EQ(data_files(folder.path()).size(), 1U);
}

TEST(NpyWriter, LeavesNothingUnlessFinished) {
  const Folder folder;
  { NpyWriter(folder.path("a.npy")).append(std::vector<std::int32_t>{1}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(refusal([&] { NpyWriter(folder.path("no/a.npy")); }),
              HasSubstr("No such file or directory; check its folder and the space left there"));
}

}  // namespace
}  // namespace pipewright
