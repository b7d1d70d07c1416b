#include "pipewright/graph/cut_points.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <memory>

namespace jit = torch::jit;

namespace pipewright {
namespace {

constexpr int kMostCrossing = 8;  // of an automatic choice

void collect_uses(jit::Node* node, std::unordered_set<const jit::Value*>* inside,
                  std::vector<jit::Value*>* found) {
  for (jit::Value* input : node->inputs()) {
    if (input->node()->kind() == c10::prim::Constant || inside->contains(input)) continue;
    if (std::find(found->begin(), found->end(), input) == found->end()) found->push_back(input);
  }
  for (jit::Block* block : node->blocks()) {
    inside->insert(block->inputs().begin(), block->inputs().end());
    for (jit::Node* inner : block->nodes()) {
      collect_uses(inner, inside, found);
      inside->insert(inner->outputs().begin(), inner->outputs().end());
    }
    collect_uses(block->return_node(), inside, found);
  }
}

/// The arguments that it writes into.
std::vector<jit::Value*> written(jit::Node* node) {
  std::vector<jit::Value*> result;
  if (const c10::FunctionSchema* schema = node->maybeSchema()) {
    for (std::size_t i = 0; i < schema->arguments().size() && i < node->inputs().size(); ++i) {
      const auto* alias = schema->arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite()) result.push_back(node->input(i));
    }
  }
  for (jit::Block* block : node->blocks()) {
    for (jit::Node* inner : block->nodes()) {
      const auto more = written(inner);
      result.insert(result.end(), more.begin(), more.end());
    }
  }
  return result;
}

bool has_effects(jit::Node* node) {
  if (node->hasSideEffects() || node->isNondeterministic() || !written(node).empty()) return true;
  for (jit::Block* block : node->blocks()) {
    if (std::any_of(block->nodes().begin(), block->nodes().end(), has_effects)) return true;
  }
  return false;
}

/// Layers hand each other tensors, and numbers as tensors.
bool may_cross(const jit::Value& value) {
  const auto kind = value.type()->kind();
  return kind == c10::TypeKind::TensorType || kind == c10::TypeKind::IntType ||
         kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType;
}

}  // namespace

std::vector<jit::Value*> CutPlan::uses(jit::Node* node) {
  std::unordered_set<const jit::Value*> inside;
  std::vector<jit::Value*> found;
  collect_uses(node, &inside, &found);
  return found;
}

bool CutPlan::writes(jit::Node* node) { return !written(node).empty(); }

CutPlan::CutPlan(const Graph& graph, std::vector<jit::Value*> outputs)
    : graph_(graph), outputs_(std::move(outputs)) {
  for (jit::Node* node : graph.ir()->nodes()) {
    if (node->kind() == c10::prim::Constant) continue;
    if (!depends_on_inputs(node) && !has_effects(node)) {
      free_.insert(node);
      continue;
    }
    index_[node] = static_cast<int>(nodes_.size());
    nodes_.push_back(node);
  }
  find_lives();
  forbid_between_writes();
  forbid_between_calls_of_norms();
}

bool CutPlan::flows(const jit::Value* value) const {
  if (value->node() == graph_.ir()->param_node()) return !graph_.attribute_of(value);
  return index_.contains(value->node());
}

int CutPlan::maker(const jit::Value* value) const {
  const auto found = index_.find(value->node());
  return found == index_.end() ? -1 : found->second;
}

bool CutPlan::depends_on_inputs(jit::Node* node) const {
  const auto values = uses(node);
  return std::any_of(values.begin(), values.end(),
                     [&](const jit::Value* value) { return flows(value); });
}

bool CutPlan::uses_parameters(jit::Node* node) const {
  std::vector<jit::Node*> all;
  add_free(node, &all);
  all.push_back(node);
  for (jit::Node* each : all) {
    for (const jit::Value* value : uses(each)) {
      const auto attribute = graph_.attribute_of(value);
      if (attribute && graph_.attributes()[*attribute].kind == GraphAttribute::Kind::kParameter)
        return true;
    }
  }
  return false;
}

void CutPlan::add_free(jit::Node* node, std::vector<jit::Node*>* to) const {
  for (const jit::Value* value : uses(node)) {
    jit::Node* maker = const_cast<jit::Node*>(value->node());
    if (!is_free(maker) || std::find(to->begin(), to->end(), maker) != to->end()) continue;
    add_free(maker, to);
    to->push_back(maker);
  }
}

/// From where to where each value lives, and so how many cross at each place.
void CutPlan::find_lives() {
  const int end = static_cast<int>(nodes_.size());
  const auto use = [&](const jit::Value* value, int at) {
    if (!flows(value)) return;
    const auto [life, is_new] = lives_.try_emplace(value, Life{maker(value), at, at});
    life->second.last_use = std::max(life->second.last_use, at);
  };
  for (int i = 0; i < end; ++i) {
    for (const jit::Value* value : uses(nodes_[static_cast<std::size_t>(i)])) use(value, i);
  }
  for (const jit::Value* value : outputs_) use(value, end);
  forbidden_.assign(nodes_.size() + 1, 0);
  crossing_.assign(nodes_.size() + 1, 0);
  for (const auto& [value, life] : lives_) {
    for (int p = life.maker + 1; p <= std::min(life.last_use, end - 1); ++p) {
      const auto at = static_cast<std::size_t>(p);
      if (!may_cross(*value)) forbidden_[at] = 1;
      // An input that waits for its first use crosses wherever one cuts.
      const bool waits = life.maker < 0 && life.first_use >= p;
      if (!waits) ++crossing_[at];
    }
  }
}

/// What is written into and what shares its memory stay in one layer until the last write.
void CutPlan::forbid_between_writes() {
  std::unique_ptr<jit::AliasDb> aliases;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (const jit::Value* target : written(nodes_[i])) {
      if (!aliases) aliases = std::make_unique<jit::AliasDb>(graph_.ir());
      int earliest = static_cast<int>(i);
      for (const auto& [value, life] : lives_) {
        if (life.maker < static_cast<int>(i) && aliases->mayAlias(value, target))
          earliest = std::min(earliest, std::max(life.maker, 0));
      }
      for (int p = earliest + 1; p <= static_cast<int>(i); ++p)
        forbidden_[static_cast<std::size_t>(p)] = 1;
    }
  }
}

/// Running statistics move once a mini-batch, over all calls of the norm: those are in one layer.
void CutPlan::forbid_between_calls_of_norms() {
  for (const GraphNorm& norm : graph_.norms()) {
    const jit::Value* mean = graph_.value_of(norm.running_mean);
    int first = -1;
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      std::vector<jit::Node*> all;
      add_free(nodes_[static_cast<std::size_t>(i)], &all);
      all.push_back(nodes_[static_cast<std::size_t>(i)]);
      const bool calls = std::any_of(all.begin(), all.end(), [&](jit::Node* node) {
        const auto values = uses(node);
        return std::find(values.begin(), values.end(), mean) != values.end();
      });
      if (!calls) continue;
      for (int p = first + 1; first >= 0 && p <= i; ++p)
        forbidden_[static_cast<std::size_t>(p)] = 1;
      first = first < 0 ? i : first;
    }
  }
}

int CutPlan::crossing(int p) const { return crossing_[static_cast<std::size_t>(p)]; }

std::vector<int> CutPlan::points_within(int most_crossing) const {
  std::vector<int> result;
  int last = -1;  // the last node with parameters
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    if (!uses_parameters(nodes_[static_cast<std::size_t>(i)])) continue;
    int best = -1;
    for (int p = last + 1; last >= 0 && p <= i; ++p) {
      if (forbidden_[static_cast<std::size_t>(p)] != 0 || crossing(p) == 0) continue;
      if (best < 0 || crossing(p) <= crossing(best)) best = p;  // the latest of the narrowest
    }
    if (best >= 0 && crossing(best) <= most_crossing) result.push_back(best);
    last = i;
  }
  return result;
}

std::vector<int> CutPlan::points(const CutOptions& options) const {
  if (options.most_crossing > 0) return points_within(options.most_crossing);
  std::vector<int> best;
  for (int most = 1; most <= kMostCrossing; ++most) {
    auto found = points_within(most);
    if (found.size() > best.size() || most == 1) best = std::move(found);
    if (static_cast<int>(best.size()) + 1 >= options.wanted_layers) break;
  }
  return best;
}

}  // namespace pipewright
