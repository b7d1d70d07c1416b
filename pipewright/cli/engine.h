#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pipewright::cli {

/// What needs LibTorch is a program of its own, pipewright-engine, beside this one: to load
/// LibTorch takes half a second, for which those who simulate or launch need not wait. Nothing:
/// this was built without it.
std::optional<std::string> find_engine();

/// Turns this process into the engine, with these arguments. Throws InvalidArgument where there is
/// none.
[[noreturn]] void become_engine(const std::vector<std::string>& arguments);

}  // namespace pipewright::cli
