#pragma once
/// \file
/// The program of a compile worker.

namespace ce::runtime {

/// The only argument of `ce-tune` as a compile worker.
inline constexpr const char* compile_worker_argument = "compile-worker";

/// Declares that the running executable can be started as a compile worker, with compile_worker_argument: from now on
/// devices start it, whatever its file name, unless CE_WORKER names another.
void offer_this_executable(bool offered = true) noexcept;

/// Compiles kernels with NVRTC for the parent process, until the parent closes `in`. `in` and `out` are a socket or two
/// pipes; from now on, other output to them goes to standard error.
/// \return the exit status: 0, or 1 with a line on standard error if the received data is invalid
[[nodiscard]] int compile_worker_main(int in, int out);

}  // namespace ce::runtime
