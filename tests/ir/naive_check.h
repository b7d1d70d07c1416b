#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "pipewright/ir/program.h"
#include "tests/ir/naive_versions.h"

namespace pipewright {

/// A second opinion on validity, written from the definition with sets and repetition instead of
/// speed: the validator must agree with it on every Program, mutated ones too.
class NaiveCheck {
 public:
  static bool accepts(const Program& program) {
    const NaiveCheck check(program);
    return check.work_is_complete() && check.order_is_right() && check.runs(false) &&
           (!check.lowered_ || check.runs(true)) && naive_versions_accept(program);
  }

 private:
  using Key = std::tuple<Kind, int, int>;

  explicit NaiveCheck(const Program& program) : p_(program), lowered_(program.is_lowered()) {}

  static Key key(Instruction i) { return {i.kind(), i.stage(), i.micro_batch()}; }
  bool crosses(int s) const {
    return s >= 0 && s + 1 < p_.num_stages() &&
           p_.placement[static_cast<std::size_t>(s)] !=
               p_.placement[static_cast<std::size_t>(s + 1)];
  }

  /// Everything that must occur occurs once, on its rank, and nothing else does (R may).
  bool work_is_complete() const {
    std::map<Key, int> count;
    for (std::size_t rank = 0; rank < p_.ranks.size(); ++rank) {
      for (const Instruction i : p_.ranks[rank]) {
        if (p_.placement[static_cast<std::size_t>(i.stage())] != static_cast<int>(rank))
          return false;
        const bool again = p_.is_asynchronous() && is_once_a_step(i.kind());
        if (++count[key(i)] > 1 && !again) return false;
      }
    }
    for (const Key& k : carried()) {
      if (count.contains(k)) return false;
    }
    if (p_.open && !left_backwards_are_last(count)) return false;
    std::set<Key> wanted;
    for (int s = 0; s < p_.num_stages(); ++s) {
      for (int m = 0; m < p_.num_micro_batches; ++m) {
        wanted.insert({Kind::kForward, s, m});
        const bool split = count.contains({Kind::kBackwardInput, s, m}) ||
                           count.contains({Kind::kBackwardWeight, s, m});
        if (!p_.forward_only && split) wanted.insert({Kind::kBackwardInput, s, m});
        if (!p_.forward_only && split) wanted.insert({Kind::kBackwardWeight, s, m});
        if (!p_.forward_only && !split) wanted.insert({Kind::kBackward, s, m});
        if (count.contains({Kind::kRecompute, s, m}) && !p_.forward_only)
          wanted.insert({Kind::kRecompute, s, m});
        if (!lowered_) continue;
        if (crosses(s)) wanted.insert({Kind::kSendForward, s, m});
        if (crosses(s - 1)) wanted.insert({Kind::kRecvForward, s, m});
        if (crosses(s - 1) && !p_.forward_only) wanted.insert({Kind::kSendBackward, s, m});
        if (crosses(s) && !p_.forward_only) wanted.insert({Kind::kRecvBackward, s, m});
      }
      for (const Kind once : {Kind::kReduce, Kind::kStep}) {
        const bool any = std::any_of(count.begin(), count.end(),
                                     [&](const auto& c) { return std::get<0>(c.first) == once; });
        if (any) wanted.insert({once, s, -1});
      }
    }
    std::set<Key> found;
    for (const auto& [k, n] : count) found.insert(k);
    found.merge(carried());
    for (int s = 0; s < p_.num_stages() && p_.open; ++s) {  // what is left is not wanted
      for (int m = 0; m < p_.num_micro_batches; ++m) {
        if (!found.contains({Kind::kBackward, s, m})) {
          wanted.erase({Kind::kBackward, s, m});
          wanted.erase({Kind::kSendBackward, s, m});
          wanted.erase({Kind::kRecompute, s, m});
        }
        if (!found.contains({Kind::kBackward, s + 1, m})) wanted.erase({Kind::kRecvBackward, s, m});
      }
    }
    if (p_.is_asynchronous()) {  // when they come is the versions' affair
      std::erase_if(found, [](const Key& k) { return is_once_a_step(std::get<0>(k)); });
      std::erase_if(wanted, [](const Key& k) { return is_once_a_step(std::get<0>(k)); });
    }
    return found == wanted;
  }

  /// What was done before the Program.
  std::set<Key> carried() const {
    std::set<Key> done;
    const int stages = p_.num_stages();
    for (int s = 0; s < stages; ++s) {
      for (int m = 0; m < p_.carried.micro_batches; ++m) {
        const auto backwards = [&](int stage) {
          return stage < stages ? p_.carried.backwards[static_cast<std::size_t>(stage)] : 0;
        };
        done.insert({Kind::kForward, s, m});
        if (m < backwards(s)) done.insert({Kind::kBackward, s, m});
        if (!lowered_) continue;
        if (crosses(s)) done.insert({Kind::kSendForward, s, m});
        if (crosses(s - 1)) done.insert({Kind::kRecvForward, s, m});
        if (m < backwards(s) && crosses(s - 1)) done.insert({Kind::kSendBackward, s, m});
        if (m < backwards(s + 1) && crosses(s)) done.insert({Kind::kRecvBackward, s, m});
      }
    }
    return done;
  }

  /// Of an open Program: a stage leaves the last micro-batches, no fewer than the stage after it,
  /// and at least one is left.
  bool left_backwards_are_last(const std::map<Key, int>& count) const {
    const std::set<Key> before = carried();
    const auto done = [&](int s, int m) {
      return count.contains({Kind::kBackward, s, m}) || before.contains({Kind::kBackward, s, m});
    };
    bool any_left = false;
    for (int s = 0; s < p_.num_stages(); ++s) {
      for (int m = 0; m < p_.num_micro_batches; ++m) {
        any_left = any_left || !done(s, m);
        if (m > 0 && done(s, m) && !done(s, m - 1)) return false;
        if (s + 1 < p_.num_stages() && done(s, m) && !done(s + 1, m)) return false;
      }
    }
    return any_left;
  }

  /// The position of an instruction in its rank's list, or -1.
  std::ptrdiff_t position(Kind kind, int s, int m) const {
    const auto& list =
        p_.ranks[static_cast<std::size_t>(p_.placement[static_cast<std::size_t>(s)])];
    const auto found = std::find_if(list.begin(), list.end(), [&](Instruction i) {
      return key(i) == Key{kind, s, m};
    });
    return found == list.end() ? -1 : found - list.begin();
  }

  bool order_is_right() const {
    for (int s = 0; s < p_.num_stages(); ++s) {
      for (int m = 0; m < p_.num_micro_batches; ++m) {
        const auto gradient =
            std::max(position(Kind::kBackward, s, m), position(Kind::kBackwardInput, s, m));
        const auto weight =
            std::max(position(Kind::kBackward, s, m), position(Kind::kBackwardWeight, s, m));
        if (position(Kind::kRecompute, s, m) > gradient && position(Kind::kRecompute, s, m) >= 0)
          return false;
        for (const Kind once : {Kind::kReduce, Kind::kStep}) {
          if (p_.is_asynchronous()) continue;
          if (position(once, s, -1) >= 0 && position(once, s, -1) < weight) return false;
        }
        if (m == 0 || gradient < 0) continue;
        const auto gradient_before =
            std::max(position(Kind::kBackward, s, m - 1), position(Kind::kBackwardInput, s, m - 1));
        const auto weight_before = std::max(position(Kind::kBackward, s, m - 1),
                                            position(Kind::kBackwardWeight, s, m - 1));
        if (gradient < gradient_before || weight < weight_before) return false;
      }
      if (!p_.is_asynchronous() && position(Kind::kStep, s, -1) >= 0 &&
          position(Kind::kStep, s, -1) < position(Kind::kReduce, s, -1)) {
        return false;
      }
    }
    return true;
  }

  /// What must have been done before; empty where a message's other end is the only condition.
  bool ready(Instruction i, const std::set<Key>& done) const {
    const int s = i.stage();
    const int m = i.micro_batch();
    const auto has = [&](Kind kind, int stage) { return done.contains({kind, stage, m}); };
    const auto gradient = [&](int stage) {
      return has(Kind::kBackward, stage) || has(Kind::kBackwardInput, stage);
    };
    switch (i.kind()) {
      case Kind::kForward:
        return s == 0 || (lowered_ && crosses(s - 1) ? has(Kind::kRecvForward, s)
                                                     : has(Kind::kForward, s - 1));
      case Kind::kBackward:
      case Kind::kBackwardInput:
        return has(Kind::kForward, s) &&
               (s + 1 == p_.num_stages() ||
                (lowered_ && crosses(s) ? has(Kind::kRecvBackward, s) : gradient(s + 1)));
      case Kind::kBackwardWeight: return has(Kind::kBackwardInput, s);
      case Kind::kRecompute: return has(Kind::kForward, s);
      case Kind::kSendForward: return has(Kind::kForward, s);
      case Kind::kSendBackward: return gradient(s);
      case Kind::kRecvForward: return has(Kind::kSendForward, s - 1);
      case Kind::kRecvBackward: return has(Kind::kSendBackward, s + 1);
      default: return true;
    }
  }

  /// Runs whatever can run until nothing can.
  bool runs(bool sends_block) const {
    std::set<Key> done = carried();
    std::vector<std::size_t> at(p_.ranks.size());
    const auto here = [&](std::size_t rank) { return p_.ranks[rank][at[rank]]; };
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < p_.ranks.size(); ++rank) {
        if (at[rank] == p_.ranks[rank].size()) continue;
        const Instruction i = here(rank);
        if (is_recv(i.kind()) && sends_block) continue;  // taken together with its send
        if (!ready(i, done)) continue;
        if (is_send(i.kind()) && sends_block) {
          const bool forward = i.kind() == Kind::kSendForward;
          const Key other{forward ? Kind::kRecvForward : Kind::kRecvBackward,
                          i.stage() + (forward ? 1 : -1), i.micro_batch()};
          const auto peer =
              static_cast<std::size_t>(p_.placement[static_cast<std::size_t>(std::get<1>(other))]);
          if (at[peer] == p_.ranks[peer].size() || key(here(peer)) != other) continue;
          done.insert(other);
          ++at[peer];
        }
        done.insert(key(i));
        ++at[rank];
        moved = true;
      }
    }
    for (std::size_t rank = 0; rank < p_.ranks.size(); ++rank) {
      if (at[rank] != p_.ranks[rank].size()) return false;
    }
    return true;
  }

  const Program& p_;
  bool lowered_;
};

}  // namespace pipewright
