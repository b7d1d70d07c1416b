#include "pipewright/transport/lifelines.h"

#include "pipewright/transport/blame.h"
#include "pipewright/transport/tags.h"

namespace pipewright {

Lifelines::Lifelines(World* world, c10::intrusive_ptr<compat::ProcessGroup> group)
    : world_(world), group_(std::move(group)) {
  for (int process = 0; process < world_->place().size; ++process) {
    if (process == world_->place().rank) continue;
    auto line = std::make_unique<Line>();
    line->process = process;
    line->buffer = torch::zeros({1}, torch::dtype(torch::kByte));
    std::vector<torch::Tensor> tensors = {line->buffer};
    try {
      line->work = group_->recv(tensors, process, kGoodbyeTag);
    } catch (const std::exception& error) {  // it is gone already
      world_->fail(lost_words(process, error.what()));
      continue;
    }
    lines_.push_back(std::move(line));
  }
  for (auto& line : lines_) line->thread = std::thread([this, &one = *line] { watch(one); });
}

Lifelines::~Lifelines() {
  if (!world_->failure()) say_goodbye();
  for (auto& line : lines_) line->work->abort();
  for (auto& line : lines_) line->thread.join();
}

void Lifelines::watch(const Line& line) {
  try {
    line.work->wait(kForEver);  // a goodbye, or given up
  } catch (const std::exception& error) {
    const std::string why = error.what();
    // Gloo ends all connections where one wait here came to its deadline: who waited tells.
    if (why.find("imeout") != std::string::npos) return;
    const std::string lost = lost_words(line.process, why);
    // One that failed itself may have told so: the reason is better than what it led to.
    if (world_->failure_or(lost) == lost && !world_->gone(line.process)) world_->fail(lost);
  }
}

/// The others wait for it from the start: it is taken at once, unless one has left already.
void Lifelines::say_goodbye() {
  std::vector<Work> under_way;
  std::vector<torch::Tensor> buffers;
  for (const auto& line : lines_) {
    std::vector<torch::Tensor> tensors = {torch::ones({1}, torch::dtype(torch::kByte))};
    try {
      under_way.push_back(group_->send(tensors, line->process, kGoodbyeTag));
      buffers.push_back(tensors[0]);
    } catch (const std::exception&) {  // it has left
    }
  }
  for (const Work& work : under_way) {
    try {
      work->wait(std::chrono::duration_cast<std::chrono::milliseconds>(kMoment));
    } catch (const std::exception&) {
    }
  }
}

}  // namespace pipewright
