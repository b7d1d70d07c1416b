#pragma once

#include <functional>

namespace pipewright {

/// Runs a call that may never return, such as a question to a process that was stopped, on a thread
/// of its own. Returns true when it has ended, and throws what it threw. Returns false once
/// `given_up` says so, which is asked again and again: then the thread is left behind, so the call
/// must own all that it uses.
bool call_with_patience(std::function<void()> call, const std::function<bool()>& given_up);

}  // namespace pipewright
