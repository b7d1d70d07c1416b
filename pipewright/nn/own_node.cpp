#include "pipewright/nn/own_node.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include "pipewright/torch/compat.h"

namespace pipewright {

bool runs_plainly_on_cpu(const torch::Tensor& x) {
  return x.device().is_cpu() &&
         (x.scalar_type() == torch::kFloat || x.scalar_type() == torch::kDouble) &&
         !compat::autocast_enabled(c10::kCPU) && !torch::jit::tracer::isTracing();
}

void set_node(torch::Tensor* out, const std::shared_ptr<torch::autograd::Node>& node,
              const Tensors& inputs) {
  torch::autograd::edge_list edges;
  for (const torch::Tensor& input : inputs) {
    const bool learns = input.defined() && input.requires_grad();
    edges.push_back(learns ? torch::autograd::impl::gradient_edge(input) : torch::autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(*out, node);
}

}  // namespace pipewright
