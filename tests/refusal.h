#pragma once

#include <string>

#include "pipewright/base/error.h"

namespace pipewright {

/// What a call is refused with: the message of the Error it throws, or "accepted".
template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace pipewright
