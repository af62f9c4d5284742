#pragma once
/// \file
/// One ce_context for each device that tensors lie on.

#include "include/ce/ce.h"

namespace ce_torch {

/// The host device in place of the index of a GPU.
constexpr int host = -1;

/// The context of a device, made on first use with the options of ce_torch_configure().
/// \throws std::runtime_error with what ce_last_error() says
[[nodiscard]] ce_context* context_of(int device);

/// \throws std::runtime_error with what ce_last_error() says
void require(ce_status status);

}  // namespace ce_torch

// What the Python package calls through ctypes.
#define CE_TORCH_API extern "C" __attribute__((visibility("default")))

/// What contexts are made with from here on; those that exist stay where they are used, in graphs for instance, and
/// serve no further call. `device`, `allocate`, `release` and `allocator_state` are the extension's own.
CE_TORCH_API ce_status ce_torch_configure(const ce_context_options* options);
/// The context of a device, for the functions of ce.h; NULL where ce_last_error() says why.
CE_TORCH_API ce_context* ce_torch_context(int32_t device);
/// How many bytes of a device contexts have from torch's allocator at present.
CE_TORCH_API int64_t ce_torch_allocated(int32_t device);
/// Destroys all contexts, while torch's allocator still is there.
CE_TORCH_API void ce_torch_shutdown(void);
