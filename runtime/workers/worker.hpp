#pragma once
/// \file
/// The program of a compile worker.

namespace ce::runtime {

/// What makes `ce-tune` a compile worker, as its only argument.
inline constexpr const char* compile_worker_argument = "compile-worker";

/// The running executable is a compile worker where it is started with compile_worker_argument: from now on it is
/// the one that devices start, whatever its file is called, unless CE_WORKER names another.
void offer_this_executable(bool offered = true) noexcept;

/// Compiles kernels with NVRTC for the process that started this one, until that one closes `in`. `in` and
/// `out` are a socket or two pipes; from here on, what else is written to them goes to standard error.
/// \return the exit status: 0, or 1 when what arrived was no conversation, with a line on standard error
[[nodiscard]] int compile_worker_main(int in, int out);

}  // namespace ce::runtime
