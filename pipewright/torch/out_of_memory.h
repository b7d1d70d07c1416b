#pragma once

#include <c10/util/Exception.h>

#include <new>
#include <string_view>

namespace pipewright {

/// LibTorch's CPU allocator has no error type of its own, only words.
inline bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  return std::string_view(error.what()).find("DefaultCPUAllocator") != std::string_view::npos;
}

}  // namespace pipewright
