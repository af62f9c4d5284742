#pragma once
/// \file
/// Which program compiles, how many of it, and for how long.

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace ce::runtime::cuda {

struct WorkerSettings {
  std::filesystem::path program;   ///< empty where there is none
  std::vector<std::string> tried;  ///< where it was looked for in vain
  int workers = 0;                 ///< at most; 0 compiles in this process
  std::chrono::milliseconds kernel_limit{60'000};
  std::chrono::milliseconds start_limit{20'000};  ///< to open NVRTC from a slow disk
};

/// Three for every four processors, up to 16: the process that waits for them has kernels to verify and to time meanwhile,
/// and with as many as there are the most promising compile slower.
/// \param processes  that share the processors and tune at the same time, 1 or more; the number is of each
[[nodiscard]] int workers_for(int processors, int processes = 1) noexcept;

/// That this process may use.
[[nodiscard]] int processors();

/// From the environment: CE_COMPILE_WORKERS, else workers_for() the processors that this process may use;
/// CE_COMPILE_TIMEOUT, the seconds for one kernel; and the program, the first there is of CE_WORKER (nothing
/// else is tried where it is set), the running executable if it offers itself (worker.hpp), and ce-tune in the
/// executable's folder, in ../bin of the library's folder, in the library's folder, and in PATH.
/// \throws InvalidArgument for a number that is none
[[nodiscard]] WorkerSettings worker_settings();

}  // namespace ce::runtime::cuda
