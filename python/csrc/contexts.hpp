#pragma once
/// \file
/// One ce_context for each device that tensors lie on.

#include <cstdint>
#include <string>

#include "ce/ce.h"

namespace ce_torch {

/// The host device in place of the index of a GPU.
constexpr int host = -1;

/// The context of a device, made on first use with the options of ce_torch_configure().
/// \throws std::runtime_error with what ce_last_error() says
[[nodiscard]] ce_context* context_of(int device);

/// \throws std::runtime_error, std::invalid_argument, ... with what ce_last_error() says
void require(ce_status status);

/// The types of Python for what the operators themselves refuse.
enum class Refusal : std::int32_t { none, value_error, index_error, type_error, out_of_memory };
/// torch hands exceptions on as they are, or (2.12 and later) as RuntimeError alone: Python asks afterwards what it was.
/// \throws std::invalid_argument, std::out_of_range or std::runtime_error (memory) with "ce: " and the message
[[noreturn]] void refuse(Refusal refusal, const std::string& message);

}  // namespace ce_torch

// What the Python package calls through ctypes.
#define CE_TORCH_API extern "C" __attribute__((visibility("default")))

/// What contexts are made with from here on; those that exist stay where they are used, in graphs for instance, and
/// serve no further call. `device`, `allocate`, `release` and `allocator_state` are the extension's own.
CE_TORCH_API ce_status ce_torch_configure(const ce_context_options* options);
/// The context of a device, for the functions of ce.h; NULL where ce_last_error() says why.
CE_TORCH_API ce_context* ce_torch_context(int32_t device);
/// ce_check_all() of all contexts of a device that there are, those that ce_torch_configure() replaced too: what the first
/// of them says that has something to say.
CE_TORCH_API ce_status ce_torch_check(int32_t device);
/// How many bytes of a device contexts have from torch's allocator at present.
CE_TORCH_API int64_t ce_torch_allocated(int32_t device);
/// What the calling thread's operators refused last, a Refusal, and its message; valid until they refuse again.
CE_TORCH_API int32_t ce_torch_last_refusal(const char** message);
/// Where operators learn how many bytes torch can have of a GPU at present; NULL: they leave it to the C library, which does
/// not see what torch keeps. \param ask  writes them and returns 1, or returns 0 where it fails
CE_TORCH_API void ce_torch_ask_free_memory(int32_t (*ask)(int32_t device, int64_t* bytes));
/// From here on the calling thread's operators on ranks choose their kernels and launch nothing.
CE_TORCH_API void ce_torch_begin_choosing(void);
/// They launch again. \param text  receives what was chosen, a line each: key, config, microseconds a row or 0, and 1 where
/// a later call may run another config; valid until the thread chooses again
CE_TORCH_API void ce_torch_end_choosing(const char** text);
/// Destroys all contexts, while torch's allocator still is there.
CE_TORCH_API void ce_torch_shutdown(void);
