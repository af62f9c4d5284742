#pragma once
/// \file
/// One ce_context for each device with tensors.

#include <cstdint>
#include <string>

#include "ce/ce.h"

namespace ce_torch {

/// Stands for the host device where a GPU's index is expected.
constexpr int host = -1;

/// The context of a device, created on first use with the options of ce_torch_configure().
/// \throws std::runtime_error with the message of ce_last_error()
[[nodiscard]] ce_context* context_of(int device);

/// \throws std::runtime_error, std::invalid_argument, ... with the message of ce_last_error()
void require(ce_status status);

/// Python's exception types for errors that the operators themselves raise.
enum class Refusal : std::int32_t { none, value_error, index_error, type_error, out_of_memory };
/// torch passes exceptions on unchanged, or (2.12 and later) as RuntimeError only: Python then asks for the type.
/// \throws std::invalid_argument, std::out_of_range or std::runtime_error (memory) with "ce: " and the message
[[noreturn]] void refuse(Refusal refusal, const std::string& message);

}  // namespace ce_torch

// Functions that the Python package calls through ctypes.
#define CE_TORCH_API extern "C" __attribute__((visibility("default")))

/// Sets the options of contexts that are created later. Existing contexts stay where they are used, for instance in
/// graphs, but serve no further call. The extension sets `device`, `allocate`, `release` and `allocator_state` itself.
CE_TORCH_API ce_status ce_torch_configure(const ce_context_options* options);
/// The context of a device, for the functions of ce.h; NULL on failure, explained by ce_last_error().
CE_TORCH_API ce_context* ce_torch_context(int32_t device);
/// Calls ce_check_all() on every context of a device, including those that ce_torch_configure() replaced, and returns
/// the first error.
CE_TORCH_API ce_status ce_torch_check(int32_t device);
/// Bytes of a device that contexts hold from torch's allocator at present.
CE_TORCH_API int64_t ce_torch_allocated(int32_t device);
/// The last error that the calling thread's operators raised, a Refusal, and its message, which is valid until the next
/// one.
CE_TORCH_API int32_t ce_torch_last_refusal(const char** message);
/// Sets how operators learn the number of bytes of a GPU that torch can use at present; NULL: the C library decides,
/// which does not see torch's cached memory. \param ask  writes the bytes and returns 1, or returns 0 if it fails
CE_TORCH_API void ce_torch_ask_free_memory(int32_t (*ask)(int32_t device, int64_t* bytes));
/// Makes the calling thread's operators on ranks choose their kernels without launching them.
CE_TORCH_API void ce_torch_begin_choosing(void);
/// Makes them launch again. \param text  receives the choices, one a line: key, config, microseconds a row or 0, and 1
/// if a later call may run another config; valid until the thread chooses again
CE_TORCH_API void ce_torch_end_choosing(const char** text);
/// Destroys all contexts, while torch's allocator still exists.
CE_TORCH_API void ce_torch_shutdown(void);
