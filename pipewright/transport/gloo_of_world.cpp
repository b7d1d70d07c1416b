#include <chrono>
#include <thread>

#include "pipewright/transport/gloo.h"

namespace pipewright {
namespace {

/// One that leaves while another still connects would be taken for lost.
void wait_for_others(c10d::Store& store, int size) {
  for (auto count = store.add("connected", 1); count < size; count = store.add("connected", 0))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace

c10::intrusive_ptr<compat::ProcessGroup> make_gloo_group(const World& world,
                                                         const std::string& name, int rank,
                                                         int size,
                                                         std::chrono::milliseconds timeout) {
  const auto group = std::make_shared<c10::intrusive_ptr<compat::ProcessGroup>>();
  world.guarded("the connections to the other ranks", timeout,
                [group, store = world.store(name), rank, size, address = world.address(), timeout] {
                  *group = make_gloo_group(store, rank, size, address, timeout);
                  wait_for_others(*store, size);
                });
  return *group;
}

}  // namespace pipewright
