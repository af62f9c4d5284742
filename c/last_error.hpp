#pragma once
/// \file
/// A thread's last error, as plain values.

#include <cstdint>
#include <string>

#include "ce/ce.h"
#include "ce/error.hpp"

namespace ce::c {

struct LastError {
  ce_status status = CE_STATUS_SUCCESS;
  std::int32_t code = 0;
  std::string message, place, operation, argument, value, expected, call, log, source_path, problems;
};

/// The status for an error of this kind and class.
[[nodiscard]] ce_status status_of(const Error& error) noexcept;

/// Copies the parts of an error of ce.
[[nodiscard]] LastError parts_of(const Error& error);

/// The parts as ce_last_error_details() returns them; they point into `error`.
[[nodiscard]] ce_error_details details_of(const LastError& error) noexcept;

}  // namespace ce::c
