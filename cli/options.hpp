#pragma once
/// \file
/// Common options of the commands: devices and databases.

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

/// The options of every command.
struct CommonOptions {
  std::string database;  ///< a path; empty for the default
  std::string device;    ///< as the user wrote it; empty for the default
  std::string tags;      ///< as the user wrote them; empty for none
  bool json = false;
};

void add_database_option(CLI::App& command, CommonOptions& common);
void add_device_option(CLI::App& command, CommonOptions& common, const std::string& help = "");
void add_json_option(CLI::App& command, CommonOptions& common);
/// Adds --wide, for commands with tables.
void add_wide_option(CLI::App& command);
/// Adds --tag, which selects measurements with these tags.
CLI::Option* add_tag_option(CLI::App& command, CommonOptions& common);
/// Adds the required KEY. See find_key().
void add_key_argument(CLI::App& command, std::string& key);

/// The requested device, else CE_DEVICE, else the first GPU, else the host with a message.
/// \throws InvalidArgument naming --device or CE_DEVICE, DeviceError if there is no GPU, Unsupported for a GPU that no
/// kernel runs on
[[nodiscard]] std::unique_ptr<runtime::Device> open_device(const CommonOptions& common);

/// \throws Error(compile) if the device has no compiler
void require_compiler(const runtime::Device& device);

/// The path of --db, else the default.
/// \throws NotFound if neither --db nor the environment names a database
[[nodiscard]] std::filesystem::path database_path(const CommonOptions& common);
/// \throws NotFound, DatabaseError
[[nodiscard]] cache::Cache open_database(const CommonOptions& common);
/// The measurements with these tags in their environment.
[[nodiscard]] std::vector<cache::Measurement> with_tags(std::vector<cache::Measurement> list,
                                                        const Tags& tags);
/// The tags of --tag. \throws InvalidArgument
[[nodiscard]] Tags tags_of(const CommonOptions& common);
/// Like open_database(); with --tag a copy in memory of the measurements with those tags.
[[nodiscard]] cache::Cache open_tagged_database(const CommonOptions& common);
/// Opens the database with its layers, as a program would; an empty one in memory if there is none, unless --db names
/// it.
/// \throws NotFound, DatabaseError
[[nodiscard]] cache::Cache open_layered_database(const CommonOptions& common);
/// The only key whose id begins with `prefix`.
/// \throws InvalidArgument for a prefix that is invalid or not unique, NotFound naming the existing keys
[[nodiscard]] cache::Key find_key(const cache::Cache& cache, const std::string& prefix);

/// A database that a program asks: the user's, or a layer below it.
struct Asked {
  std::string name;  ///< "user", "site" or "system"
  std::string place;
  std::string problem;  ///< why it cannot be read; empty if it can
  const cache::Cache* cache;
};

/// The user's database and its lower() layers, nearest first.
/// \param path  path of the user's database
[[nodiscard]] std::vector<Asked> databases_of(const cache::Cache& user, const std::string& path);

struct FoundKey {
  Asked database;
  cache::Key key;
};

/// Finds the key in several databases: in the nearest one with a final for it; else in the nearest one that has it.
/// \throws as find_key()
[[nodiscard]] FoundKey find_key(const std::vector<Asked>& databases, const std::string& prefix);

}  // namespace ce::cli
