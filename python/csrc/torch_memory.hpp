#pragma once
/// \file
/// Device memory and streams of torch.

#include <cstdint>

#include "ce/ce.h"

namespace ce_torch {

/// torch's current stream of a GPU.
/// \throws std::runtime_error
[[nodiscard]] ce_stream current_stream(int device);

/// The functions of ce_context_options, with the index of the device as state. They allocate memory as tensors do, so
/// torch's statistics count it, and torch frees its cache elsewhere before memory runs out.
[[nodiscard]] void* allocate(void* state, std::size_t bytes, ce_stream stream);
void release(void* state, void* memory, ce_stream stream);

/// Bytes that allocate() returned and release() has not yet received.
[[nodiscard]] std::int64_t allocated(int device);

}  // namespace ce_torch
