#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "pipewright/ir/program.h"

namespace pipewright {

/// The versions of an asynchronous Program whose work is complete and in order, judged from the
/// definition: the second opinion on check_program_versions().
class NaiveVersions {
 public:
  explicit NaiveVersions(const Program& program) : p_(program) {
    for (int stage = 0; stage < p_.num_stages(); ++stage) stages_[stage] = {};
    for (std::size_t rank = 0; rank < p_.ranks.size(); ++rank) {
      for (std::size_t step = 0; step < p_.ranks[rank].size(); ++step) {
        const Instruction i = p_.ranks[rank][step];
        stages_[i.stage()].push_back({i.kind(), i.micro_batch(), p_.versions[rank][step]});
      }
    }
  }

  bool accepts() const {
    const int reduces = number_of(Kind::kReduce);
    if (reduces != 0 && reduces != number_of(Kind::kStep)) return false;
    for (const auto& [stage, list] : stages_) {
      if (!uses_are_right(list) || !updates_are_right(list) || !used_ones_are_there(stage)) {
        return false;
      }
      const int keeps = keeps_of(stage);
      if (keeps < 0 || keeps > start_of(stage) + count(list, Kind::kStep)) return false;
      for (const auto& [m, version] : forwards(list)) {
        if (!has_backward(list, m) && version < keeps) return false;
      }
    }
    return updates_agree();
  }

 private:
  struct Step {
    Kind kind;
    int micro_batch;
    int version;
  };
  using List = std::vector<Step>;

  int keeps_of(int stage) const {
    const int rank = p_.placement[static_cast<std::size_t>(stage)];
    return p_.keeps[static_cast<std::size_t>(rank)];
  }
  static int count(const List& list, Kind kind) {
    int n = 0;
    for (const Step& s : list) n += s.kind == kind ? 1 : 0;
    return n;
  }
  int number_of(Kind kind) const {
    int n = 0;
    for (const auto& [stage, list] : stages_) n += count(list, kind);
    return n;
  }
  static std::map<int, int> forwards(const List& list) {
    std::map<int, int> versions;
    for (const Step& s : list) {
      if (s.kind == Kind::kForward) versions[s.micro_batch] = s.version;
    }
    return versions;
  }
  static bool has_backward(const List& list, int micro_batch) {
    return std::any_of(list.begin(), list.end(), [&](const Step& s) {
      return s.kind == Kind::kBackward && s.micro_batch == micro_batch;
    });
  }

  /// Messages have no version, work has one; a micro-batch uses one alone, and later ones (in the
  /// order in which forwards or, of those before the Program, backwards stand) no older one.
  bool uses_are_right(const List& list) const {
    std::map<int, std::set<int>> used;
    std::vector<int> order;
    for (const Step& s : list) {
      if (is_send(s.kind) || is_recv(s.kind)) {
        if (s.version != -1) return false;
      } else if (s.version < 0 || s.kind == Kind::kBackwardInput ||
                 s.kind == Kind::kBackwardWeight) {
        return false;
      }
      if (is_compute(s.kind)) used[s.micro_batch].insert(s.version);
      if (s.kind == Kind::kForward) order.push_back(s.version);
    }
    std::vector<int> before;
    for (const auto& [m, versions] : used) {
      if (versions.size() != 1) return false;
      if (m < p_.carried.micro_batches) before.push_back(*versions.begin());
    }
    order.insert(order.begin(), before.begin(), before.end());
    return std::is_sorted(order.begin(), order.end());
  }

  static bool updates_are_right(const List& list) {
    int newest = -1;
    bool gradients = false;
    bool reduced = false;
    for (const Step& s : list) {
      if (s.kind == Kind::kBackward) {
        if (reduced) return false;
        gradients = true;
      }
      if (s.kind != Kind::kStep && s.kind != Kind::kReduce) continue;
      if (!gradients || s.version < 1 || (newest >= 0 && s.version != newest + 1)) return false;
      if (s.kind == Kind::kReduce) {
        if (reduced) return false;
        if (newest < 0) newest = s.version - 1;
        reduced = true;
        continue;
      }
      newest = s.version;
      gradients = reduced = false;
    }
    return !reduced;
  }

  /// The version at a stage's start: by its own first STEP, by another's, by what it uses.
  int start_of(int stage) const {
    const auto first_step = [&](int of) {
      for (const Step& s : stages_.at(of)) {
        if (s.kind == Kind::kStep) return s.version - 1;
      }
      return -1;
    };
    if (first_step(stage) >= 0) return first_step(stage);
    for (const auto& [other, list] : stages_) {
      if (begins_empty() && first_step(other) >= 0) return first_step(other);
    }
    int most = std::max(0, keeps_of(stage));
    for (const Step& s : stages_.at(stage)) {
      if (is_compute(s.kind)) most = std::max(most, s.version);
    }
    return most;
  }

  bool begins_empty() const { return p_.carried.micro_batches == 0 && p_.num_stages() > 1; }

  bool used_ones_are_there(int stage) const {
    int newest = start_of(stage);
    const bool only_newest = begins_empty() && number_of(Kind::kStep) > 0;
    const int oldest = only_newest ? newest : 0;
    for (const Step& s : stages_.at(stage)) {
      if (is_compute(s.kind) && (s.version > newest || s.version < oldest)) return false;
      if (s.kind == Kind::kStep) newest = s.version;
    }
    return true;
  }

  /// By micro-batch after whose backward it comes, an update is one of all stages that do that
  /// backward here, and makes the same version.
  bool updates_agree() const {
    std::map<int, std::set<int>> versions;
    std::map<int, std::set<int>> stages;
    std::set<int> starts;
    for (const auto& [stage, list] : stages_) {
      int micro_batch = -1;
      for (const Step& s : list) {
        if (s.kind == Kind::kBackward) micro_batch = s.micro_batch;
        if (s.kind != Kind::kStep) continue;
        versions[micro_batch].insert(s.version);
        stages[micro_batch].insert(stage);
      }
      starts.insert(start_of(stage));
    }
    for (const auto& [m, made] : versions) {
      if (made.size() != 1) return false;
      for (const auto& [stage, list] : stages_) {
        if (has_backward(list, m) && !stages[m].contains(stage)) return false;
      }
    }
    return !begins_empty() || number_of(Kind::kStep) == 0 || starts.size() == 1;
  }

  const Program& p_;
  std::map<int, List> stages_;
};

inline bool naive_versions_accept(const Program& program) {
  return !program.is_asynchronous() || NaiveVersions(program).accepts();
}

}  // namespace pipewright
