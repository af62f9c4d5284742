#pragma once
/// \file
/// The few calls of NCCL that `ce` needs.

#include <cstddef>

#include "ce/dtype.hpp"

namespace ce::runtime::cuda {

struct RankOf {
  int rank = 0, size = 1;
};

/// \param comm  an ncclComm_t
/// \throws Unsupported if the process can load no NCCL, DeviceError if NCCL reports an error
[[nodiscard]] RankOf nccl_rank(void* comm);

/// The asynchronous error of the communicator, as a message, or null; waits for nothing.
[[nodiscard]] const char* nccl_failure(void* comm) noexcept;

/// Enqueues an all-gather of the bytes of all ranks, in their order. For a nonblocking communicator it waits until NCCL
/// has enqueued it, for ten minutes at most. \returns null, or NCCL's error message
[[nodiscard]] const char* nccl_all_gather(void* comm, const void* send, void* receive, std::size_t bytes,
                                          Stream stream) noexcept;

}  // namespace ce::runtime::cuda
