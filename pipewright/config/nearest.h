#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pipewright::config {

/// How many letters must be put in, left out, exchanged or swapped with their neighbour to make one
/// word of the other. Capitals count as small letters, `-` as `_`.
int edit_distance(std::string_view from, std::string_view to);

/// The name that was probably meant, the first of several; empty where none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace pipewright::config
