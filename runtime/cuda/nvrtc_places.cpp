#include "runtime/cuda/nvrtc_places.hpp"

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

constexpr const char* sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

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

class Places {
 public:
  explicit Places(std::vector<std::string>& tried) : tried_(tried) {}

  void add_soname(const char* name) { names_.emplace_back(name); }

  /// The libraries in the folder; the folder itself becomes a place tried when there is none.
  void add_folder(const fs::path& folder) {
    bool any = false;
    std::error_code error;
    for (const char* name : {sonames[0], sonames[1], "libnvrtc.so"}) {
      if (!fs::exists(folder / name, error)) continue;
      names_.push_back(folder / name);
      any = true;
    }
    if (!any) tried_.push_back(fmt::format("{}: no libnvrtc.so there", folder.string()));
  }

  /// CUDA's layout below a toolkit's root.
  void add_toolkit(const fs::path& root) {
    add_folder(root / "lib64");
    add_folder(root / "lib");
  }

  /// What pip installs: site-packages/nvidia/*/lib, in each Python of that root.
  void add_python(const fs::path& root) {
    bool any = false;
    for (const fs::path& python : subfolders(root / "lib", "python3")) {
      for (const char* packages : {"site-packages", "dist-packages"}) {
        for (const fs::path& package : subfolders(python / packages / "nvidia", "")) {
          std::error_code error;
          for (const char* name : sonames) {
            if (!fs::exists(package / "lib" / name, error)) continue;
            names_.push_back(package / "lib" / name);
            any = true;
          }
        }
      }
    }
    if (!any)
      tried_.push_back(fmt::format(
          "{}/lib/python3*/{{site,dist}}-packages/nvidia/*/lib: no libnvrtc.so there", root.string()));
  }

  [[nodiscard]] std::vector<std::string> names() && { return std::move(names_); }

 private:
  std::vector<std::string>& tried_;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<std::string> nvrtc_places(std::vector<std::string>& tried) {
  Places places(tried);
  if (const auto chosen = environment_variable("CE_NVRTC")) {
    std::error_code error;
    if (!fs::is_directory(*chosen, error)) return {*chosen};
    places.add_folder(*chosen);
    return std::move(places).names();
  }
  for (const char* name : sonames) places.add_soname(name);
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const auto root = environment_variable(name)) places.add_toolkit(*root);
  }
  places.add_folder("/usr/local/cuda/lib64");
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const auto root = environment_variable(name)) places.add_python(*root);
  }
  if (const auto home = environment_variable("HOME")) places.add_python(fs::path(*home) / ".local");
  places.add_python("/usr");
  places.add_python("/usr/local");
  return std::move(places).names();
}

}  // namespace ce::runtime::cuda
