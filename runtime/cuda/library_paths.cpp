#include "runtime/cuda/library_paths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/environment.hpp"

namespace ce::runtime::cuda {
namespace {

namespace fs = std::filesystem;

/// The folder's subfolders whose names begin with `prefix`, sorted so that a newer version comes first.
std::vector<fs::path> subfolders(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(prefix)) found.push_back(entry->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

class Paths {
 public:
  Paths(const ToolkitLibrary& library, std::vector<std::string>& tried)
      : name_(library.name), sonames_(sonames_of(library)), tried_(tried) {}

  void add_sonames() { names_.insert(names_.end(), sonames_.begin(), sonames_.end()); }

  /// The libraries in the folder; if there are none, the folder is added to the tried paths.
  void add_folder(const fs::path& folder) {
    bool any = false;
    std::error_code error;
    const auto add = [&](const std::string& name) {
      if (!fs::exists(folder / name, error)) return;
      names_.push_back(folder / name);
      any = true;
    };
    for (const std::string& name : sonames_) add(name);
    add(name_);
    if (!any) tried_.push_back(fmt::format("{}: no {} there", folder.string(), name_));
  }

  /// Folders of CUDA's layout below a toolkit's root.
  void add_toolkit(const fs::path& root) {
    add_folder(root / "lib64");
    add_folder(root / "lib");
  }

  /// Folders that pip installs into: site-packages/nvidia/*/lib, in each Python below that root.
  void add_python(const fs::path& root) {
    bool any = false;
    for (const fs::path& python : subfolders(root / "lib", "python3")) {
      for (const char* packages : {"site-packages", "dist-packages"}) {
        for (const fs::path& package : subfolders(python / packages / "nvidia", "")) {
          std::error_code error;
          for (const std::string& name : sonames_) {
            if (!fs::exists(package / "lib" / name, error)) continue;
            names_.push_back(package / "lib" / name);
            any = true;
          }
        }
      }
    }
    if (!any)
      tried_.push_back(fmt::format("{}/lib/python3*/{{site,dist}}-packages/nvidia/*/lib: it has no {}",
                                   root.string(), name_));
  }

  [[nodiscard]] std::vector<std::string> names() && { return std::move(names_); }

 private:
  std::string name_;
  std::vector<std::string> sonames_;
  std::vector<std::string>& tried_;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<std::string> sonames_of(const ToolkitLibrary& library) {
  return {fmt::format("{}.13", library.name), fmt::format("{}.12", library.name)};
}

std::vector<std::string> library_paths(const ToolkitLibrary& library, std::vector<std::string>& tried) {
  Paths paths(library, tried);
  if (const auto chosen = environment_variable(library.variable)) {
    std::error_code error;
    if (!fs::is_directory(*chosen, error)) return {*chosen};
    paths.add_folder(*chosen);
    return std::move(paths).names();
  }
  paths.add_sonames();
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const auto root = environment_variable(name)) paths.add_toolkit(*root);
  }
  paths.add_folder("/usr/local/cuda/lib64");
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const auto root = environment_variable(name)) paths.add_python(*root);
  }
  if (const auto home = environment_variable("HOME")) paths.add_python(fs::path(*home) / ".local");
  paths.add_python("/usr");
  paths.add_python("/usr/local");
  return std::move(paths).names();
}

}  // namespace ce::runtime::cuda
