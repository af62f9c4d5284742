#include "cli/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "cache/layers.hpp"
#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "cli/known.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "runtime/cuda/device.hpp"

namespace ce::cli {
namespace {

constexpr std::size_t shortest_prefix = 4;
constexpr std::size_t most_candidates = 8;

}  // namespace

void add_database_option(CLI::App& command, CommonOptions& common) {
  command
      .add_option("--db", common.database,
                  "The database (default: CE_DB, else $XDG_DATA_HOME/ce/ce.db,\n"
                  "else ~/.local/share/ce/ce.db)")
      ->type_name("FILE");
}

void add_device_option(CLI::App& command, CommonOptions& common, const std::string& help) {
  constexpr const char* usual = "cuda, cuda:N or host\n(default: CE_DEVICE, else the first GPU, else host)";
  command.add_option("--device", common.device, help.empty() ? usual : help)->type_name("DEVICE");
}

void add_json_option(CLI::App& command, CommonOptions& common) {
  command.add_flag("--json", common.json, "Print one JSON document instead of text");
}

void add_wide_option(CLI::App& command) {
  command.add_flag_callback(
      "--wide", [] { set_page_width(any_width); },
      "Print tables with all columns and texts, however long the lines");
}

CLI::Option* add_tag_option(CLI::App& command, CommonOptions& common) {
  return command
      .add_option("--tag", common.tags,
                  "Only measurements with these tags (see CE_TAG), such as job=17 or\njob=17,image=base")
      ->type_name("K=V");
}

void add_key_argument(CLI::App& command, std::string& key) {
  command.add_option("KEY", key, "A key of db list; its first 4 digits or more")->required();
}

std::unique_ptr<runtime::Device> open_device(const CommonOptions& common) {
  const bool by_default = common.device.empty();
  const bool by_environment = by_default && environment_variable("CE_DEVICE").has_value();
  const std::string name = by_default ? default_device_name() : common.device;
  if (by_default && !by_environment && name == "host")
    log(LogLevel::info,
        "no GPU was found: ce-tune uses the host device, whose times say nothing about a GPU (see ce-tune "
        "doctor)");
  try {
    return ce::open_device(name);
  } catch (const InvalidArgument& error) {
    if (error.argument() != "device") throw;
    throw InvalidArgument("--device", in_quotes(name), error.expected());
  } catch (const Unsupported& error) {
    if (runtime::cuda_device_count() > 0) throw;
    throw DeviceError("opening " + name, 0, error.what());
  }
}

void require_compiler(const runtime::Device& device) {
  try {
    static_cast<void>(device.compiler());
  } catch (const Unsupported& error) {
    throw Error(ErrorKind::compile, fmt::format("{} has no compiler: {}", device.name(), error.what()));
  }
}

std::filesystem::path database_path(const CommonOptions& common) {
  if (!common.database.empty()) return common.database;
  std::filesystem::path path = cache::Cache::default_path();
  if (path.empty())
    throw NotFound("the path of the database is unknown; expected --db, CE_DB, XDG_DATA_HOME or HOME");
  return path;
}

cache::Cache open_database(const CommonOptions& common) {
  return cache::Cache::open_existing(database_path(common));
}

std::vector<cache::Measurement> with_tags(std::vector<cache::Measurement> list, const Tags& tags) {
  std::erase_if(list, [&tags](const cache::Measurement& measurement) {
    return !std::all_of(tags.begin(), tags.end(), [&](const auto& tag) {
      const auto found = measurement.environment.find(environment_name_of_tag(tag.first));
      return found != measurement.environment.end() && found->second == tag.second;
    });
  });
  return list;
}

Tags tags_of(const CommonOptions& common) {
  return common.tags.empty() ? Tags{} : parse_tags("--tag", common.tags);
}

cache::Cache open_tagged_database(const CommonOptions& common) {
  const Tags tags = tags_of(common);
  cache::Cache all = open_database(common);
  if (tags.empty()) return all;
  cache::Cache chosen = cache::Cache::in_memory();
  for (const cache::KeySummary& summary : all.keys())
    chosen.add(with_tags(all.measurements(summary.key), tags));
  return chosen;
}

cache::Cache open_layered_database(const CommonOptions& common) {
  try {
    return cache::Cache::with_layers(open_database(common));
  } catch (const NotFound&) {
    if (!common.database.empty()) throw;
  }
  return cache::Cache::with_layers(cache::Cache::in_memory());
}

cache::Key find_key(const cache::Cache& cache, const std::string& prefix) {
  return find_key({{.name = "user", .place = "", .problem = "", .cache = &cache}}, prefix).key;
}

std::vector<Asked> databases_of(const cache::Cache& user, const std::string& path) {
  std::vector<Asked> databases{{"user", path, "", &user}};
  for (const cache::Layer& layer : user.lower())
    databases.push_back(
        {layer.name, layer.path.empty() ? "built in" : layer.path.string(), layer.problem, &layer.cache});
  return databases;
}

FoundKey find_key(const std::vector<Asked>& databases, const std::string& prefix) {
  const bool hexadecimal = prefix.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (prefix.size() < shortest_prefix || !hexadecimal)
    throw InvalidArgument(
        "KEY", in_quotes(prefix),
        fmt::format("at least {} of the hexadecimal digits that db list shows", shortest_prefix));
  std::map<std::string, cache::Key> found;  // by id
  for (const Asked& database : databases)
    for (cache::Key& key : database.cache->find(prefix)) found.emplace(key.id(), std::move(key));
  if (found.size() == 1) {
    const cache::Key& key = found.begin()->second;
    const Asked* nearest = nullptr;
    for (const Asked& database : databases) {
      const Known known(*database.cache, key);
      if (known.measurements.empty()) continue;
      if (nearest == nullptr) nearest = &database;
      if (!tuner::has_final(known.decision)) continue;
      nearest = &database;
      break;
    }
    return {nearest == nullptr ? databases.front() : *nearest, key};
  }

  std::vector<std::string> candidates;
  if (found.empty())
    for (const Asked& database : databases)
      for (const cache::KeySummary& summary : database.cache->keys()) candidates.push_back(summary.key.id());
  else
    for (const auto& [id, key] : found) candidates.push_back(id);
  const std::size_t left_out = candidates.size() > most_candidates ? candidates.size() - most_candidates : 0;
  candidates.resize(candidates.size() - left_out);
  const std::string list = fmt::format("{}{}", fmt::join(candidates, ", "),
                                       left_out > 0 ? fmt::format(" and {} more", left_out) : "");
  if (!found.empty())
    throw InvalidArgument("KEY", in_quotes(prefix),
                          fmt::format("more digits, because these keys all begin so: {}", list));
  throw NotFound(candidates.empty()
                     ? fmt::format("no key begins with {}, because the database has no keys", prefix)
                     : fmt::format("no key begins with {}; there are {}", prefix, list));
}

}  // namespace ce::cli
