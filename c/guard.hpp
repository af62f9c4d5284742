#pragma once
/// \file
/// Keeps exceptions inside the library: every function of ce.h that can fail is one call of guarded().

#include <string_view>

#include "ce/ce.h"

namespace ce::c {

/// Stores the exception that is being handled as the thread's last error. \returns its status
[[nodiscard]] ce_status keep_current_exception() noexcept;

template <class Call>
[[nodiscard]] ce_status guarded(const Call& call) noexcept {
  try {
    call();
    return CE_STATUS_SUCCESS;
  } catch (...) {
    return keep_current_exception();
  }
}

/// \throws InvalidArgument if a pointer that the call needs is null
void require_pointer(std::string_view argument, const void* pointer, std::string_view expected);

}  // namespace ce::c
