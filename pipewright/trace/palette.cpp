#include "pipewright/trace/palette.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "pipewright/trace/breakdown.h"

namespace pipewright {
namespace {

constexpr Rgb kWhite{255, 255, 255};
constexpr Rgb kNearBlack{11, 14, 20};

constexpr std::array<Rgb, kAllKinds.size()> kKindColours = {{
    {0x21, 0x6f, 0xb8},  // F: blue
    {0xd9, 0x5f, 0x1e},  // B: vermilion
    {0xea, 0xa8, 0x2a},  // I: amber
    {0x12, 0x9b, 0x79},  // W: green, bluish so that it stays off vermilion
    {0xbf, 0x6f, 0xa8},  // R: purple
    {0x6f, 0x84, 0x9c},  // SEND_F: slate
    {0xa2, 0xb2, 0xc4},  // RECV_F: light slate
    {0x8a, 0x78, 0x68},  // SEND_B: taupe
    {0xbd, 0xae, 0xa0},  // RECV_B: light taupe
    {0xd6, 0xc9, 0x3a},  // REDUCE: yellow
    {0x6b, 0x70, 0x7b},  // STEP: grey
}};

Rgb mixed(Rgb from, Rgb to, double share) {
  const auto mix = [share](std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>(std::lround(a + share * (b - a)));
  };
  return {mix(from.red, to.red), mix(from.green, to.green), mix(from.blue, to.blue)};
}

double luminance(Rgb colour) {
  const auto linear = [](std::uint8_t channel) {
    const double value = channel / 255.0;
    return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue);
}

}  // namespace

Rgb kind_colour(Kind kind, int chunk) {
  // Neighbouring chunks are the ones to tell apart, so the second is the one far from the first.
  static constexpr std::array<double, kNumShades> kWhiteness = {0, 0.46, 0.22, 0.66};
  const Rgb base = kKindColours[static_cast<std::size_t>(kind)];
  return mixed(base, kWhite, kWhiteness[static_cast<std::size_t>(chunk % kNumShades)]);
}

Rgb part_colour(std::size_t part) {
  static constexpr Rgb kImbalance{0xe3, 0x9a, 0x7f};
  static constexpr Rgb kBubble{0xb4, 0xbc, 0xc8};
  const std::array<Rgb, kBreakdownParts.size()> colours = {kind_colour(Kind::kForward),
                                                           kind_colour(Kind::kRecompute),
                                                           kind_colour(Kind::kStep),
                                                           kind_colour(Kind::kReduce),
                                                           kImbalance,
                                                           kBubble};
  return colours[part];
}

double contrast(Rgb one, Rgb other) {
  const double a = luminance(one);
  const double b = luminance(other);
  return (std::max(a, b) + 0.05) / (std::min(a, b) + 0.05);
}

Rgb text_colour(Rgb background) {
  return contrast(background, kWhite) >= contrast(background, kNearBlack) ? kWhite : kNearBlack;
}

std::string hex(Rgb colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

int terminal_colour(Rgb colour) {
  const auto level = [](std::uint8_t channel) {
    static constexpr std::array<int, 6> kLevels = {0, 95, 135, 175, 215, 255};
    const auto nearer = [channel](int a, int b) {
      return std::abs(a - channel) < std::abs(b - channel);
    };
    return static_cast<int>(std::min_element(kLevels.begin(), kLevels.end(), nearer) -
                            kLevels.begin());
  };
  return 16 + 36 * level(colour.red) + 6 * level(colour.green) + level(colour.blue);
}

}  // namespace pipewright
