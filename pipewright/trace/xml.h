#pragma once

#include <string>
#include <string_view>

namespace pipewright {

/// Text as it may stand in XML, in an attribute too.
std::string escape_xml(std::string_view text);

}  // namespace pipewright
