#include "runtime/workers/settings.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/environment.hpp"
#include "runtime/compile_limit.hpp"
#include "runtime/workers/worker.hpp"

namespace ce::runtime {
namespace cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* command = "ce-tune";
constexpr int most_by_default = 16;

std::atomic<bool> executable_is_offered = false;

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

/// The shared object that holds this code, or the executable.
fs::path this_library() {
  static const char here = 0;
  Dl_info info = {};
  if (::dladdr(&here, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

std::vector<fs::path> candidates(const fs::path& executable) {
  std::vector<fs::path> found;
  if (executable.is_absolute()) found.push_back(executable.parent_path() / command);
  // The name of an executable is the one it was called by, which may not be a path.
  if (const fs::path library = this_library(); library.is_absolute()) {
    found.push_back(library.parent_path().parent_path() / "bin" / command);
    found.push_back(library.parent_path() / command);
  }
  std::istringstream folders(environment_variable("PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (fs::path(folder).is_absolute()) found.push_back(fs::path(folder) / command);
  return found;
}

void find_program(WorkerSettings& settings) {
  std::vector<fs::path> paths;
  if (const auto named = environment_variable("CE_WORKER")) {
    paths.emplace_back(*named);
  } else {
    // This path leads to the running file even if an update has replaced it meanwhile.
    constexpr const char* self = "/proc/self/exe";
    if (executable_is_offered.load()) {
      settings.program = self;
      return;
    }
    std::error_code error;
    paths = candidates(fs::read_symlink(self, error));
  }
  for (const fs::path& path : paths) {
    if (is_program(path)) {
      settings.program = path;
      return;
    }
    settings.tried.push_back(path.string());
  }
}

}  // namespace

int processors() {
  cpu_set_t set;
  // This only fails on machines with more processors than a cpu_set_t can hold.
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
}

int workers_for(int processors, int processes) noexcept {
  return std::clamp((processors - processors / 4) / processes, 1, most_by_default);
}

WorkerSettings worker_settings() {
  WorkerSettings settings;
  settings.workers = number_of_environment("CE_COMPILE_WORKERS", workers_for(processors()), 0, 256);
  settings.kernel_limit = compile_limit(60);
  if (settings.workers > 0) find_program(settings);
  return settings;
}

}  // namespace cuda

void offer_this_executable(bool offered) noexcept { cuda::executable_is_offered = offered; }

}  // namespace ce::runtime
