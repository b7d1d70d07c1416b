#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pipewright/input/array.h"
#include "pipewright/input/file.h"

namespace pipewright {

/// Pictures with a class each. Calls may come from several threads at once.
class ImageSet {
 public:
  ImageSet() = default;
  ImageSet(const ImageSet&) = delete;
  ImageSet(ImageSet&&) = delete;
  ImageSet& operator=(const ImageSet&) = delete;
  ImageSet& operator=(ImageSet&&) = delete;
  virtual ~ImageSet() = default;

  virtual std::int64_t size() const = 0;
  virtual std::array<std::int64_t, 3> shape() const = 0;  // channels, height, width
  virtual int classes() const = 0;
  virtual int label(std::int64_t image) const = 0;  // 0 to classes() - 1

  /// Fills `into` with the picture's bytes, channel by channel, row by row.
  virtual void read(std::int64_t image, std::span<std::byte> into) const = 0;

  std::size_t image_bytes() const;
};

/// Pictures and labels in two IDX files, as MNIST's: (N, H, W) or (N, C, H, W) and (N), of unsigned
/// bytes.
class IdxImages final : public ImageSet {
 public:
  /// Throws InvalidArgument naming the file and the place where it is not what it should be, or
  /// where a label is `classes` or more.
  IdxImages(const std::string& images, const std::string& labels, int classes = 10);

  std::int64_t size() const override { return images_.rows(); }
  std::array<std::int64_t, 3> shape() const override;
  int classes() const override { return classes_; }
  int label(std::int64_t image) const override;
  void read(std::int64_t image, std::span<std::byte> into) const override;

 private:
  ArrayFile images_;
  int classes_;
  std::vector<std::byte> labels_;
};

/// CIFAR-10's binary files: a byte of label and 3 x 32 x 32 bytes, picture after picture. Of
/// CIFAR-100, which has two bytes of labels, the second (fine) one is taken.
class CifarImages final : public ImageSet {
 public:
  enum class Kind : std::uint8_t { kCifar10, kCifar100 };

  /// `path`: a file, or a folder whose *.bin files are taken in the order of their names (name the
  /// training files' folder without the test file in it). Throws InvalidArgument naming the file
  /// and the place where its size is no whole number of pictures, or a label is none.
  explicit CifarImages(const std::string& path, Kind kind = Kind::kCifar10);

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  std::array<std::int64_t, 3> shape() const override { return {3, 32, 32}; }
  int classes() const override { return kind_ == Kind::kCifar10 ? 10 : 100; }
  int label(std::int64_t image) const override;
  void read(std::int64_t image, std::span<std::byte> into) const override;

 private:
  std::int64_t label_bytes() const { return kind_ == Kind::kCifar10 ? 1 : 2; }
  std::int64_t record_bytes() const;
  void add_file(const std::string& path);

  Kind kind_;
  std::vector<DataFile> files_;
  std::vector<std::int64_t> first_images_;  // by file
  std::vector<std::uint8_t> labels_;
};

}  // namespace pipewright
