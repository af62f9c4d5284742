#pragma once
/// \file
/// What the commands' options have in common: devices and databases.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/tags.hpp"
#include "cache/cache.hpp"
#include "runtime/device.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ce::cli {

/// Options of every command.
struct CommonOptions {
  std::string database;  ///< a path; empty for the default
  std::string device;    ///< as the user wrote it; empty for the default
  std::string tags;      ///< as the user wrote them; empty for none
  bool json = false;
};

void add_database_option(CLI::App& command, CommonOptions& common);
void add_device_option(CLI::App& command, CommonOptions& common, const std::string& help = "");
void add_json_option(CLI::App& command, CommonOptions& common);
/// --wide: of commands with tables.
void add_wide_option(CLI::App& command);
/// --tag: only what was measured with these tags.
CLI::Option* add_tag_option(CLI::App& command, CommonOptions& common);
/// KEY, which the command cannot do without. See find_key().
void add_key_argument(CLI::App& command, std::string& key);

/// The device that was asked for, else CE_DEVICE, else the first GPU, else the host, which is said.
/// \throws InvalidArgument naming --device or CE_DEVICE, DeviceError where there is no GPU, Unsupported for a
/// GPU that no kernel runs on
[[nodiscard]] std::unique_ptr<runtime::Device> open_device(const CommonOptions& common);

/// \throws Error(compile) where the device has no compiler
void require_compiler(const runtime::Device& device);

/// --db, else the default.
/// \throws NotFound where neither --db nor the environment says where the database is
[[nodiscard]] std::filesystem::path database_path(const CommonOptions& common);
/// \throws NotFound, DatabaseError
[[nodiscard]] cache::Cache open_database(const CommonOptions& common);
/// Those with these tags, by their measurements' environment.
[[nodiscard]] std::vector<cache::Measurement> with_tags(std::vector<cache::Measurement> list,
                                                        const Tags& tags);
/// The tags of --tag. \throws InvalidArgument
[[nodiscard]] Tags tags_of(const CommonOptions& common);
/// As open_database(); with --tag a copy in memory of what was measured with those tags.
[[nodiscard]] cache::Cache open_tagged_database(const CommonOptions& common);
/// The same with those below it that a program would ask, too; one in memory where there is none, unless --db names it.
/// \throws NotFound, DatabaseError
[[nodiscard]] cache::Cache open_layered_database(const CommonOptions& common);
/// The one key whose id begins with `prefix`.
/// \throws InvalidArgument for what cannot begin an id or begins several, NotFound naming the keys there are
[[nodiscard]] cache::Key find_key(const cache::Cache& cache, const std::string& prefix);

/// A database that a program asks: the user's, or one below it.
struct Asked {
  std::string name;  ///< "user", "site" or "system"
  std::string place;
  std::string problem;  ///< why it cannot be read; empty where it can
  const cache::Cache* cache;
};

/// The user's and those of its lower(), the nearest first.
/// \param path  of the user's
[[nodiscard]] std::vector<Asked> databases_of(const cache::Cache& user, const std::string& path);

struct FoundKey {
  Asked database;
  cache::Key key;
};

/// The same over databases: of those that know the key, the nearest whose search left a final; else the nearest.
/// \throws as find_key()
[[nodiscard]] FoundKey find_key(const std::vector<Asked>& databases, const std::string& prefix);

}  // namespace ce::cli
