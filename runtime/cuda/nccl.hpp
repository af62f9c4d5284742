#pragma once
/// \file
/// The few calls of NCCL that are needed here.

#include <cstddef>

#include "ce/dtype.hpp"

namespace ce::runtime::cuda {

struct RankOf {
  int rank = 0, size = 1;
};

/// \param comm  an ncclComm_t
/// \throws Unsupported where the process can load no NCCL, DeviceError where it says no
[[nodiscard]] RankOf nccl_rank(void* comm);

/// What NCCL has found out to be wrong since, in words, or null; waits for nothing.
[[nodiscard]] const char* nccl_failure(void* comm) noexcept;

/// The bytes of all ranks in their order. Of a communicator that does not block, until NCCL has enqueued it, in ten minutes at
/// most. \returns null, or NCCL's words for what went wrong
[[nodiscard]] const char* nccl_all_gather(void* comm, const void* send, void* receive, std::size_t bytes,
                                          Stream stream) noexcept;

}  // namespace ce::runtime::cuda
