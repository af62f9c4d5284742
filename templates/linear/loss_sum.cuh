// Adds up the losses of all chunks, and their z-losses, in the order of the chunks. One thread for each of the two.
#pragma once
#include "linear_arguments.cuh"

using Arguments = ce::LinearArguments;

CE_KERNEL(ce_linear_loss_sum, ce::problem::threads) {
  using namespace ce;
  const int own = thread_index();
  const float* const values = own == 0 ? arguments.losses : arguments.z_losses;
  void* const output = own == 0 ? arguments.loss : arguments.z_loss;
  if (own > 1 || output == nullptr) return;
  double sum = 0;
  for (int64 chunk = 0; chunk < arguments.rows; ++chunk) sum += values[chunk];
  *static_cast<problem::Loss*>(output) = from_float<problem::Loss>(float(sum));
}
