#include "pipewright/trace/palette.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "pipewright/trace/breakdown.h"

namespace pipewright {
namespace {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

Vector times(const Matrix& matrix, const Vector& v) {
  Vector out{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) out[i] += matrix[i][j] * v[j];
  }
  return out;
}

Vector linear(Rgb colour) {
  const auto channel = [](std::uint8_t c) {
    const double v = c / 255.0;
    return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
  };
  return {channel(colour.red), channel(colour.green), channel(colour.blue)};
}

Vector lab(const Vector& rgb) {
  static constexpr Matrix kXyz = {{{0.4124 / 0.9505, 0.3576 / 0.9505, 0.1805 / 0.9505},
                                   {0.2126, 0.7152, 0.0722},
                                   {0.0193 / 1.089, 0.1192 / 1.089, 0.9505 / 1.089}}};
  Vector f = times(kXyz, rgb);
  for (double& t : f) t = t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116;
  return {116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])};
}

double distance(const Vector& a, const Vector& b) {
  return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

/// What is seen with no red and with no green cones: Machado, Oliveira and Fernandes (2009).
constexpr std::array<Matrix, 3> kEyes = {{
    {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
    {{{0.152286, 1.052583, -0.204868},
      {0.114503, 0.786281, 0.099216},
      {-0.003882, -0.048116, 1.051998}}},
    {{{0.367322, 0.860646, -0.227968},
      {0.280085, 0.672501, 0.047413},
      {-0.011820, 0.042940, 0.968881}}},
}};

// Where a difference of 2.3 is just seen, 18 is told apart at a glance.
TEST(Palette, WorkStaysApartForColourBlindEyes) {
  for (const Matrix& eye : kEyes) {
    for (const Kind a : kAllKinds) {
      for (const Kind b : kAllKinds) {
        if (a >= b || !is_compute(a) || !is_compute(b)) continue;
        const double apart = distance(lab(times(eye, linear(kind_colour(a)))),
                                      lab(times(eye, linear(kind_colour(b)))));
        EXPECT_GT(apart, 18) << kind_name(a) << " and " << kind_name(b) << ", eye "
                             << &eye - kEyes.data();
      }
    }
  }
}

TEST(Palette, WorkOfNeighbouringChunksStaysApart) {
  for (const Kind kind : kAllKinds) {
    if (!is_compute(kind)) continue;
    for (int chunk = 0; chunk < kNumShades; ++chunk) {
      EXPECT_GT(distance(lab(linear(kind_colour(kind, chunk))),
                         lab(linear(kind_colour(kind, chunk + 1)))),
                8)
          << kind_name(kind) << chunk;
    }
  }
}

TEST(Palette, TextReadsOnEveryShade) {
  for (const Kind kind : kAllKinds) {
    for (int chunk = 0; chunk < kNumShades; ++chunk) {
      const Rgb fill = kind_colour(kind, chunk);
      EXPECT_GE(contrast(fill, text_colour(fill)), 4.5) << kind_name(kind) << chunk;
    }
  }
}

TEST(Palette, HasAColourForEveryPartOfTheBreakdown) {
  std::set<std::string> colours;
  for (std::size_t i = 0; i < kBreakdownParts.size(); ++i) colours.insert(hex(part_colour(i)));
  EXPECT_EQ(colours.size(), kBreakdownParts.size());
}

TEST(Palette, WritesHexAndTerminalColours) {
  EXPECT_EQ(hex({0, 114, 178}), "#0072b2");
  EXPECT_EQ(terminal_colour({0, 0, 0}), 16);
  EXPECT_EQ(terminal_colour({255, 255, 255}), 231);
  EXPECT_EQ(terminal_colour({250, 5, 100}), 16 + 36 * 5 + 1);
}

TEST(Palette, ContrastIsTheWebsRatio) {
  EXPECT_NEAR(contrast({255, 255, 255}, {0, 0, 0}), 21, 1e-9);
  EXPECT_NEAR(contrast({10, 20, 30}, {10, 20, 30}), 1, 1e-9);
}

}  // namespace
}  // namespace pipewright
