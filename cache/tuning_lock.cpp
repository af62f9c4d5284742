#include "cache/tuning_lock.hpp"

#include <exception>
#include <system_error>

namespace ce::cache {
namespace {

/// Whether the name is NAME-tuning-lock- and 12 hexadecimal digits.
bool is_name_of_tuning_lock(const std::string& name, const std::string& beginning) {
  constexpr std::size_t digits = 12;
  return name.size() == beginning.size() + digits && name.starts_with(beginning) &&
         name.find_first_not_of("0123456789abcdef", beginning.size()) == std::string::npos;
}

}  // namespace

std::filesystem::path tuning_lock_file(const std::filesystem::path& database, const std::string& id) {
  return database.string() + "-tuning-lock-" + id;
}

void remove_abandoned_tuning_locks(const std::filesystem::path& database) noexcept try {
  namespace fs = std::filesystem;
  const std::string beginning = tuning_lock_file(database.filename(), "").string();
  std::error_code error;  // a folder that cannot be listed counts as empty
  for (fs::directory_iterator at(database.parent_path(), error), end; !error && at != end;
       at.increment(error))
    if (is_name_of_tuning_lock(at->path().filename().string(), beginning)) remove_abandoned(at->path());
} catch (const std::exception&) {  // a leftover lock file is not worth an error
}

}  // namespace ce::cache
