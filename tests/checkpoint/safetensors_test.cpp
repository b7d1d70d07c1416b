#include "pipewright/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/file.h"
#include "pipewright/base/sha256.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using testing_checkpoint::bytes_of;
using testing_checkpoint::TempFolder;

std::string read(const SafetensorsFile& file, std::string_view name) {
  const TensorRecord* tensor = file.find(name);
  if (tensor == nullptr) return "no such tensor";
  std::string bytes(static_cast<std::size_t>(tensor->bytes()), '\0');
  file.read(*tensor, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST(DTypes, HaveNamesThatReadBack) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    EXPECT_GT(dtype_bytes(dtype), 0);
  }
  EXPECT_EQ(parse_dtype("F33"), std::nullopt);
  EXPECT_EQ(dtype_name(DType::kF8E4M3), "F8_E4M3");
}

TEST(Safetensors, TensorsOfEveryTypeReadBack) {
  const TempFolder folder;
  std::map<std::string, std::string> data;
  std::vector<TensorView> tensors;
  for (const DType dtype : kAllDTypes) {
    const std::string name(dtype_name(dtype));
    data[name] = std::string(static_cast<std::size_t>(6 * dtype_bytes(dtype)), name[0]);
    tensors.push_back({name, dtype, {2, 3}, bytes_of(data[name])});
  }
  write_safetensors(folder / "all", tensors);
  const SafetensorsFile file(folder / "all");
  ASSERT_EQ(file.header().tensors.size(), kAllDTypes.size());
  for (const TensorView& tensor : tensors) {
    EXPECT_EQ(read(file, tensor.name), data[tensor.name]);
    EXPECT_EQ(file.find(tensor.name)->dtype, tensor.dtype);
    EXPECT_EQ(file.find(tensor.name)->shape, tensor.shape);
  }
}

TEST(Safetensors, EmptyTensorsScalarsAndOddNamesReadBack) {
  const TempFolder folder;
  const std::string long_name(70'000, 'n');
  const std::vector<TensorView> tensors = {
      {"empty", DType::kF64, {3, 0}, {}},
      {"also empty", DType::kU8, {0}, {}},
      {"scalar", DType::kF32, {}, bytes_of("1234")},
      {"ключ 权重 \"quoted\" \\ \n", DType::kI8, {1}, bytes_of("x")},
      {"", DType::kI8, {1}, bytes_of("y")},
      {long_name, DType::kI16, {1, 1, 1}, bytes_of("zz")}};
  write_safetensors(folder / "odd", tensors, {{"format", "pt"}, {"день", "\u00e9"}});
  const SafetensorsFile file(folder / "odd");
  for (const TensorView& tensor : tensors) {
    ASSERT_NE(file.find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(file.find(tensor.name)->shape, tensor.shape);
    EXPECT_EQ(file.find(tensor.name)->bytes(), std::ssize(tensor.data));
  }
  EXPECT_EQ(read(file, "scalar"), "1234");
  EXPECT_EQ(read(file, ""), "y");
  EXPECT_EQ(file.find("other"), nullptr);
  EXPECT_EQ(file.header().metadata, (SafetensorsMetadata{{"format", "pt"}, {"день", "\u00e9"}}));
}

TEST(Safetensors, AFileWithoutTensorsReadsBack) {
  const TempFolder folder;
  EXPECT_EQ(write_safetensors(folder / "none", {}).bytes, 16);
  EXPECT_TRUE(SafetensorsFile(folder / "none").header().tensors.empty());
}

TEST(Safetensors, LargeTensorsAreWrittenPieceByPiece) {
  const TempFolder folder;
  std::string data((std::size_t{3} << 20U) + 5, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 % 251);
  const std::vector<TensorView> tensors = {{"t", DType::kU8, {std::ssize(data)}, bytes_of(data)}};
  const WrittenFile written = write_safetensors(folder / "large", tensors);
  const std::string on_disk = read_file(folder / "large", "test");
  EXPECT_EQ(written.bytes, std::ssize(on_disk));
  EXPECT_EQ(written.tensor_bytes, std::ssize(data));
  EXPECT_EQ(written.sha256, sha256_hex(on_disk));
  EXPECT_EQ(read(SafetensorsFile(folder / "large"), "t"), data);
}

TEST(Safetensors, BytesAreThoseOfTheFormat) {
  const TempFolder folder;
  const std::vector<TensorView> tensors = {{"a", DType::kU8, {3}, bytes_of("abc")},
                                           {"b", DType::kF32, {1, 1}, bytes_of("1234")}};
  write_safetensors(folder / "f", tensors, {{"format", "pt"}});
  const std::string json = R"({"__metadata__":{"format":"pt"},)"
                           R"("b":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
                           R"("a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  const std::string padded = json + std::string((8 - json.size() % 8) % 8, ' ');
  const std::string length = {static_cast<char>(padded.size()), 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(read_file(folder / "f", "test"), length + padded + "1234abc");
}

TEST(Safetensors, TheOrderOfTensorsDoesNotMatter) {
  const TempFolder folder;
  std::vector<TensorView> tensors = {{"a", DType::kU8, {3}, bytes_of("abc")},
                                     {"c", DType::kF32, {1}, bytes_of("1234")},
                                     {"b", DType::kF32, {1}, bytes_of("5678")}};
  const WrittenFile first = write_safetensors(folder / "first", tensors);
  std::swap(tensors[0], tensors[2]);
  EXPECT_EQ(write_safetensors(folder / "second", tensors).sha256, first.sha256);
}

TEST(Safetensors, EveryTensorIsAlignedToItsElements) {
  const TempFolder folder;
  const std::vector<TensorView> tensors = {{"a", DType::kU8, {1}, bytes_of("a")},
                                           {"b", DType::kF64, {1}, bytes_of("12345678")},
                                           {"c", DType::kBF16, {1}, bytes_of("12")},
                                           {"d", DType::kI32, {1}, bytes_of("1234")}};
  write_safetensors(folder / "f", tensors);
  const SafetensorsFile file(folder / "f");
  EXPECT_EQ(file.data_start() % 8, 0);
  for (const TensorRecord& tensor : file.header().tensors) {
    EXPECT_EQ(tensor.begin % dtype_bytes(tensor.dtype), 0) << tensor.name;
  }
}

std::string write_refusal(const std::vector<TensorView>& tensors) {
  const TempFolder folder;
  const std::string words = refusal([&] { write_safetensors(folder / "f", tensors); });
  EXPECT_FALSE(is_there(folder / "f"));
  return words;
}

TEST(Safetensors, WhatNoFileCanHoldIsRefused) {
  EXPECT_THAT(write_refusal({{"a", DType::kU8, {1}, bytes_of("a")}, {"a", DType::kU8, {0}, {}}}),
              HasSubstr("tensor 'a' stands there twice"));
  EXPECT_THAT(write_refusal({{"a", DType::kF32, {2, 3}, bytes_of("abc")}}),
              HasSubstr("tensor 'a' of dtype F32 and shape [2, 3] comes with 3 bytes"));
  EXPECT_THAT(write_refusal({{"a", DType::kF32, {-1}, {}}}), HasSubstr("shape [-1]"));
  EXPECT_THAT(write_refusal({{"a", DType::kU8, {INT64_MAX, 4}, {}}}), HasSubstr("with 0 bytes"));
  EXPECT_THAT(write_refusal({{"__metadata__", DType::kU8, {0}, {}}}),
              HasSubstr("has a name the format keeps"));
  EXPECT_THAT(write_refusal({{"\xff", DType::kU8, {0}, {}}}), HasSubstr("is no UTF-8; rename it"));
  EXPECT_THAT(write_refusal({{"a", DType::kU8, std::vector<std::int64_t>(65, 1), bytes_of("a")}}),
              HasSubstr("has more than 64 dimensions"));
}

TEST(Safetensors, AFileThatIsThereIsNotOverwritten) {
  const TempFolder folder;
  write_text(folder / "f", "old");
  EXPECT_THAT(refusal([&] { write_safetensors(folder / "f", {}); }), HasSubstr("File exists"));
  EXPECT_EQ(read_file(folder / "f", "test"), "old");
}

TEST(Safetensors, RoomOfAnotherSizeIsRefused) {
  const TempFolder folder;
  const std::vector<TensorView> tensors = {{"a", DType::kU8, {3}, bytes_of("abc")}};
  write_safetensors(folder / "f", tensors);
  const SafetensorsFile file(folder / "f");
  std::vector<std::byte> room(4);
  EXPECT_THAT(refusal([&] { file.read(*file.find("a"), room); }),
              HasSubstr("has 3 bytes, room is for 4"));
}

// Written by tests/checkpoint/make_python_fixture.py.
TEST(Safetensors, WhatPythonWroteReads) {
  const SafetensorsFile file(PIPEWRIGHT_TEST_DATA "/checkpoint/python.safetensors");
  EXPECT_EQ(file.header().metadata, (SafetensorsMetadata{{"format", "pt"}}));
  ASSERT_EQ(file.header().tensors.size(), 6U);
  EXPECT_EQ(file.find("матрица")->shape, (std::vector<std::int64_t>{2, 3}));
  std::array<float, 6> matrix{};
  file.read(*file.find("матрица"), std::as_writable_bytes(std::span(matrix)));
  EXPECT_EQ(matrix, (std::array<float, 6>{0, 0.5, 1, 1.5, 2, 2.5}));
  EXPECT_EQ(file.find("scalar")->dtype, DType::kF64);
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  EXPECT_EQ(file.find("empty")->shape, (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(read(file, "flags"), std::string("\1\0\1", 3));
  EXPECT_EQ(file.find("half")->dtype, DType::kF16);
  EXPECT_EQ(file.find("counts")->dtype, DType::kI64);
}

}  // namespace
}  // namespace pipewright
