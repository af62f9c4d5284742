#pragma once
/// \file
/// The program that compiles, the number of its processes, and their time limits.

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace ce::runtime::cuda {

struct WorkerSettings {
  std::filesystem::path program;   ///< empty if there is none
  std::vector<std::string> tried;  ///< paths that were tried without success
  int workers = 0;                 ///< largest number of workers; 0: this process compiles
  std::chrono::milliseconds kernel_limit{60'000};
  std::chrono::milliseconds start_limit{20'000};  ///< long enough to open NVRTC from a slow disk
};

/// Three for every four processors, up to 16: the process that waits for them needs processors to verify and time
/// kernels, and with one worker for each the most promising kernels compile more slowly.
/// \param processes  processes that share the processors and tune at the same time, 1 or more; the result is for each
[[nodiscard]] int workers_for(int processors, int processes = 1) noexcept;

/// Number of processors that this process may use.
[[nodiscard]] int processors();

/// Reads the environment: CE_COMPILE_WORKERS, else workers_for() the processors that this process may use;
/// CE_COMPILE_TIMEOUT, the seconds for one kernel; and the program, the first that exists of CE_WORKER (if it is set,
/// nothing else is tried), the running executable if it offers itself (worker.hpp), and ce-tune in the executable's
/// folder, in ../bin of the library's folder, in the library's folder, and in PATH.
/// \throws InvalidArgument for a value that is not a number
[[nodiscard]] WorkerSettings worker_settings();

}  // namespace ce::runtime::cuda
