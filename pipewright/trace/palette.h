#pragma once

#include <cstdint>
#include <string>

#include "pipewright/base/kind.h"

namespace pipewright {

/// The colours of every picture: text, SVG and HTML take them from here and nowhere else.
/// Apart for colour-blind eyes (after Okabe and Ito), and dark or light text reads on each.
struct Rgb {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;

  friend bool operator==(const Rgb&, const Rgb&) = default;
};

/// Later chunks of a rank are drawn in lighter shades; from here on the shades repeat.
inline constexpr int kNumShades = 4;

Rgb kind_colour(Kind kind, int chunk = 0);

/// Of the part of that place in kBreakdownParts.
Rgb part_colour(std::size_t part);

/// Near-black or white, whichever reads better on `background`.
Rgb text_colour(Rgb background);

/// The WCAG contrast ratio of two colours, 1 to 21.
double contrast(Rgb one, Rgb other);

std::string hex(Rgb colour);  // "#0072b2"

/// The nearest colour of the 6x6x6 cube of 256-colour terminals.
int terminal_colour(Rgb colour);

}  // namespace pipewright
