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

/// The bytes of all ranks in their order. \returns null, or NCCL's words for what went wrong
[[nodiscard]] const char* nccl_all_gather(void* comm, const void* send, void* receive, std::size_t bytes,
                                          Stream stream) noexcept;

}  // namespace ce::runtime::cuda
