#include "pipewright/cli/guarded.h"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <string_view>

#include "pipewright/base/error.h"
#include "pipewright/cli/commands.h"

namespace pipewright::cli {
namespace {

int complain(int status, std::string_view message) {
  fmt::print(stderr, "pipewright: {}\n", message);
  return status;
}

}  // namespace

int guarded(const std::function<int()>& work) {
  try {
    return work();
  } catch (const Exit& exit) {
    return exit.status;
  } catch (const InvalidArgument& error) {
    return complain(kUsage, error.what());
  } catch (const ScheduleError& error) {
    return complain(kUsage, error.what());
  } catch (const std::bad_alloc&) {
    return complain(kFailure, "[memory] not enough memory; ask for fewer ranks or micro-batches");
  } catch (const std::exception& error) {
    return complain(kFailure, error.what());
  }
}

}  // namespace pipewright::cli
