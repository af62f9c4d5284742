#include "cli/device_names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "ce/error.hpp"
#include "cli/known.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

std::vector<cache::Key> keys_on(const cache::Cache& cache, const std::vector<std::string>& names) {
  std::vector<cache::Key> keys;
  std::set<std::string> devices, unknown(names.begin(), names.end());
  for (cache::KeySummary& summary : cache.keys()) {
    const std::string device = device_name_of(summary.key);
    devices.insert(device);
    bool is_wanted = names.empty();
    for (const std::string& name : names)
      if (lower_case(device).find(lower_case(name)) != std::string::npos) {
        is_wanted = true;
        unknown.erase(name);
      }
    if (is_wanted) keys.push_back(std::move(summary.key));
  }
  if (!unknown.empty())
    throw NotFound(fmt::format("no measurement is from a device named {}; the database has {}",
                               in_quotes(*unknown.begin()),
                               devices.empty() ? "none" : fmt::format("{}", fmt::join(devices, ", "))));
  return keys;
}

}  // namespace ce::cli
