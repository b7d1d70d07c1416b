#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipewright/transport/world.h"

namespace pipewright {

/// Work that all processes of a run do together, step by step: what one of them finds out all
/// learn, and where one fails all do. Texts travel through the world's store, so it disturbs no
/// training meanwhile. Every process makes the same calls in the same order. Without a world: this
/// process alone.
class Exchange {
 public:
  /// `name`: the same in all processes; one that was used before must have been forgotten.
  Exchange(std::shared_ptr<World> world, std::string name, std::chrono::duration<double> deadline);

  int rank() const { return world_ ? world_->place().rank : 0; }
  int size() const { return world_ ? world_->place().size : 1; }
  bool is_first() const { return rank() == 0; }

  /// Runs `work` in every process and returns what it gave in each, by rank, when all are done.
  /// Throws what it threw here; else Error with the words of the first rank where it threw;
  /// TransportError where one does not come within the deadline and `more_seconds`.
  std::vector<nlohmann::json> together(const std::function<nlohmann::json()>& work,
                                       double more_seconds = 0);

  /// All processes have come to this exchange, so they are done with those before it.
  bool all_came() const { return all_came_; }

  /// All of it is over in all processes: the texts may go.
  void forget() const;

 private:
  std::string key(int round, int rank) const;

  std::shared_ptr<World> world_;
  std::string name_;
  std::chrono::duration<double> deadline_;
  int num_rounds_ = 0;
  bool all_came_ = false;
};

/// Exchanges one after the other. Names come again: LibTorch's store keeps some bytes for every key
/// that it was ever given.
class Exchanges {
 public:
  Exchanges(std::shared_ptr<World> world, const std::string& name,
            std::chrono::duration<double> deadline);

  /// An exchange that is over at the end of its life.
  class Turn {
   public:
    explicit Turn(Exchanges* owner) : owner_(owner), exchange_(owner->begin()) {}
    ~Turn() { owner_->end(exchange_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Exchange& exchange() { return exchange_; }

   private:
    Exchanges* owner_;
    Exchange exchange_;
  };

  /// begin() is called in the same order in all processes; each exchange ends before the next
  /// begins.
  Exchange begin();
  void end(const Exchange& exchange) noexcept;

 private:
  std::shared_ptr<World> world_;
  std::string name_;
  std::chrono::duration<double> deadline_;
  int num_begun_ = 0;
  std::vector<Exchange> before_;  // whose texts may still be read
};

}  // namespace pipewright
