#include "pipewright/input/images.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

constexpr std::int64_t kCifarPixels = std::int64_t{3} * 32 * 32;

void check_images(const ArrayFile& images, const ArrayFile& labels) {
  const auto& shape = images.layout().shape;
  if (images.dtype() != DType::kU8 || shape.size() < 3 || shape.size() > 4) {
    refuse_data(images.path(), 2,
                fmt::format("pictures are unsigned bytes of 3 or 4 dimensions, this is {} of {}",
                            dtype_name(images.dtype()), shape.size()));
  }
  if (labels.dtype() != DType::kU8 || labels.layout().shape.size() != 1) {
    refuse_data(labels.path(), 2,
                fmt::format("labels are unsigned bytes of 1 dimension, this is {} of {}",
                            dtype_name(labels.dtype()), labels.layout().shape.size()));
  }
  if (images.rows() != labels.rows()) {
    throw InvalidArgument("data",
                          fmt::format("'{}' has {} pictures, '{}' {} labels; they must be "
                                      "of the same set",
                                      images.path(), images.rows(), labels.path(), labels.rows()));
  }
}

std::vector<std::byte> read_labels(const std::string& path, const ArrayLayout& layout,
                                   int classes) {
  std::vector<std::byte> labels(static_cast<std::size_t>(layout.shape.front()));
  DataFile(path).read(layout.data_start, labels);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (std::to_integer<int>(labels[i]) < classes) continue;
    refuse_data(path, layout.data_start + static_cast<std::int64_t>(i),
                fmt::format("label {} of picture {}; there are {} classes",
                            std::to_integer<int>(labels[i]), i, classes));
  }
  return labels;
}

}  // namespace

std::size_t ImageSet::image_bytes() const {
  const auto [channels, height, width] = shape();
  return static_cast<std::size_t>(channels * height * width);
}

IdxImages::IdxImages(const std::string& images, const std::string& labels, int classes)
    : images_(open_idx(images)), classes_(classes) {
  const ArrayFile label_file = open_idx(labels);
  check_images(images_, label_file);
  labels_ = read_labels(labels, label_file.layout(), classes);
}

std::array<std::int64_t, 3> IdxImages::shape() const {
  const auto& shape = images_.layout().shape;
  if (shape.size() == 3) return {1, shape[1], shape[2]};
  return {shape[1], shape[2], shape[3]};
}

int IdxImages::label(std::int64_t image) const {
  return std::to_integer<int>(labels_.at(static_cast<std::size_t>(image)));
}

void IdxImages::read(std::int64_t image, std::span<std::byte> into) const {
  images_.read(image, into);
}

CifarImages::CifarImages(const std::string& path, Kind kind) : kind_(kind) {
  for (const std::string& file : data_files(path, ".bin")) add_file(file);
}

std::int64_t CifarImages::record_bytes() const { return label_bytes() + kCifarPixels; }

void CifarImages::add_file(const std::string& path) {
  DataFile file(path);
  if (file.size() == 0 || file.size() % record_bytes() != 0) {
    refuse_data(path, file.size() / record_bytes() * record_bytes(),
                fmt::format("the file's {} bytes are no whole number of pictures, which take {} "
                            "each; it was cut short or is no CIFAR-{} binary file",
                            file.size(), record_bytes(), classes()));
  }
  first_images_.push_back(size());
  for (std::int64_t at = label_bytes() - 1; at < file.size(); at += record_bytes()) {
    std::array<std::byte, 1> label{};
    file.read(at, label);
    labels_.push_back(std::to_integer<std::uint8_t>(label[0]));
    if (labels_.back() < classes()) continue;
    refuse_data(path, at, fmt::format("label {}; there are {} classes", labels_.back(), classes()));
  }
  files_.push_back(std::move(file));
}

int CifarImages::label(std::int64_t image) const {
  return labels_.at(static_cast<std::size_t>(image));
}

void CifarImages::read(std::int64_t image, std::span<std::byte> into) const {
  internal_check(image >= 0 && image < size(), "a picture that the files do not have");
  const auto after = std::upper_bound(first_images_.begin(), first_images_.end(), image);
  const auto file = static_cast<std::size_t>(after - first_images_.begin() - 1);
  const std::int64_t record = image - first_images_[file];
  files_[file].read(record * record_bytes() + label_bytes(), into);
}

}  // namespace pipewright
