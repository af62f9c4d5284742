#include "cache/layers.hpp"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "cache/bundle.hpp"
#include "cache/recognize.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

// Pointers, not views: clang evaluates lengths at compile time step by step, and exceeds its limit.
constexpr auto shipped_lines = std::to_array<const char*>({
#include "cache/shipped_winners.inc"
});

/// Replaces the advice about the user's own file in a message, for a file that another variable names.
std::string advice_for(const char* variable, std::string problem) {
  if (const std::size_t at = problem.rfind(ways_to_name_it); at != std::string::npos)
    problem.replace(at, ways_to_name_it.size(), variable);
  return problem;
}

/// Reads through SQLite, which may have locks on the file.
bool is_bundle_file(const fs::path& path) {
  constexpr std::size_t enough = 64;
  std::error_code none;
  return fs::is_regular_file(path, none) && is_bundle(beginning_of(path, enough));
}

/// \param variable  the variable that names the path, for the message
Layer layer_at(const std::string& name, const fs::path& path, const char* variable) {
  Layer layer{.name = name, .path = path, .problem = {}, .cache = Cache::in_memory()};
  try {
    layer.path = fs::absolute(path);
    const bool is_bundle = is_bundle_file(layer.path);
    if (!is_bundle && environment_variable("CE_TRUST") && fs::exists(layer.path))
      throw DatabaseError(layer.path.string() +
                          " is not a bundle; expected a bundle with a signature, because CE_TRUST is set");
    layer.cache = is_bundle ? Cache::of_bundle(layer.path) : Cache::open_to_read(layer.path);
  } catch (const std::exception& error) {
    layer.problem = advice_for(variable, error.what());
    log_once(LogLevel::warning, fmt::format("the database of {} is not used: {}", variable, layer.problem));
  }
  return layer;
}

Layer built_in() {
  Layer layer{.name = "system", .path = {}, .problem = {}, .cache = Cache::in_memory()};
  try {
    layer.cache = Cache::of_export(shipped_winners(), "the shipped winners");
  } catch (const std::exception& error) {
    layer.problem = error.what();
    log_once(LogLevel::warning, fmt::format("the winners that ship with ce are not used: {}", error.what()));
  }
  return layer;
}

}  // namespace

std::string shipped_winners() {
  std::string text;
  for (const char* line : shipped_lines) text.append(line) += '\n';
  return text;
}

bool names_layers() {
  return environment_variable("CE_SITE_DB").has_value() || environment_variable("CE_SYSTEM_DB").has_value();
}

std::vector<Layer> open_lower_layers() {
  std::vector<Layer> layers;
  if (const auto site = environment_variable("CE_SITE_DB"))
    layers.push_back(layer_at("site", *site, "CE_SITE_DB"));
  const auto system = environment_variable("CE_SYSTEM_DB");
  if (!system)
    layers.push_back(built_in());
  else if (*system != "none")
    layers.push_back(layer_at("system", *system, "CE_SYSTEM_DB"));
  return layers;
}

}  // namespace ce::cache
