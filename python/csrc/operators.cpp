/// \file
/// The operators torch.ops.ce.*, on torch's stable interface.
///
/// An operator without an underscore in front has autograd, fake tensors and the CPU registered in Python; its twin
/// with one is only the kernel, for callers that have handled those. `_eager_softmax` has everything but autograd in
/// Python: most calls of softmax reach their kernel through it alone, as most calls of cross entropy do through
/// eager_cross_entropy_operators(). linear_operators() register their CPU kernels here. If a call is refused, nothing
/// was enqueued.

#include "python/csrc/operators.hpp"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace ce_torch {
namespace {

std::vector<Operator> operators() {
  std::vector<Operator> all = softmax_operators();
  for (std::vector<Operator>& more :
       std::vector{cross_entropy_operators(), rank_operators(), linear_operators()})
    std::ranges::move(more, std::back_inserter(all));
  return all;
}

}  // namespace

STABLE_TORCH_LIBRARY(ce, library) {
  for (const char* name : {"_eager_softmax", "_eager_log_softmax"})
    library.def((std::string(name) + "(Tensor input, int dim) -> Tensor").c_str());
  for (const Operator& one : operators())
    for (const std::string& name : {one.name, "_" + one.name})
      library.def((name + "(" + one.arguments + ") -> " + one.returns).c_str());
  for (const Operator& one : eager_cross_entropy_operators())
    library.def(("_" + one.name + "(" + one.arguments + ") -> " + one.returns).c_str());
}

STABLE_TORCH_LIBRARY_IMPL(ce, CUDA, library) {
  for (const Operator& one : operators()) {
    if (one.name == "softmax" || one.name == "log_softmax")
      library.impl(("_eager_" + one.name).c_str(), one.boxed);
    library.impl(one.name.c_str(), one.boxed);
    library.impl(("_" + one.name).c_str(), one.twin);
  }
  for (const Operator& one : eager_cross_entropy_operators())
    library.impl(("_" + one.name).c_str(), one.twin);
}

// The host device. For operators without an underscore in front, Python decides whether to use it.
STABLE_TORCH_LIBRARY_IMPL(ce, CPU, library) {
  for (const Operator& one : operators()) library.impl(("_" + one.name).c_str(), one.twin);
  for (const Operator& one : eager_cross_entropy_operators())
    library.impl(("_" + one.name).c_str(), one.twin);
  for (const Operator& one : linear_operators()) library.impl(one.name.c_str(), one.boxed);
}

}  // namespace ce_torch
