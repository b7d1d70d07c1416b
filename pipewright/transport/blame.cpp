#include "pipewright/transport/blame.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pipewright/base/error.h"
#include "pipewright/base/words.h"

namespace pipewright {

std::string lost_words(int process, const std::string& why) {
  return fmt::format("rank {} was lost: {}", process, first_line(why));
}

std::string Blame::late(int other_rank, bool sending) const {
  if (const auto failure = world_->failure()) return *failure;
  constexpr const char* kAdvice = "raise the deadline if a stage is that slow";
  const std::vector<int> chain = world_->chain_of_waits(process(other_rank));
  if (chain.size() > 1) {
    return fmt::format("rank {} kept rank {} waiting for {} s; {}", chain.back(),
                       fmt::join(chain.rbegin() + 1, chain.rend(), " and so rank "),
                       deadline_.count(), kAdvice);
  }
  return fmt::format("rank {} did not {} within {} s; {}", process(other_rank),
                     sending ? "take what was sent to it" : "send", deadline_.count(), kAdvice);
}

std::string Blame::cause(int other_rank, const std::string& why, bool sending) const {
  if (why.find("imed out") != std::string::npos) return late(other_rank, sending);
  if (why.empty())
    return world_->failure().value_or("the step was given up because another rank failed");
  const std::string lost = lost_words(process(other_rank), why);
  const std::string failure = world_->failure_or(lost);
  if (failure == lost && world_->gone(process(other_rank)))
    return fmt::format("rank {} has left the run", process(other_rank));
  return failure;
}

void Blame::give_up(int from_rank, const MessageKey& key, const std::string& cause) const {
  throw TransportError("transport",
                       fmt::format("{}; rank {} was waiting for the {} from rank {}", cause,
                                   process(rank_), to_text(key), process(from_rank)));
}

void Blame::fail_sending(int /*to_rank*/, const MessageKey& key, const std::string& cause) const {
  world_->fail(
      fmt::format("{}; rank {} was sending it the {}", cause, world_->place().rank, to_text(key)));
}

}  // namespace pipewright
