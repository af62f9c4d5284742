#pragma once
/// \file
/// Writes output files completely, in place of the old ones, or not at all; or appends to them.

#include <cstdint>
#include <fstream>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace ce::cli {

/// Who may read a new file.
enum class Readers : std::uint8_t { everyone, the_user };

/// Whether the file is the standard output, as /dev/stdout is.
[[nodiscard]] bool is_standard_output(const std::string& path);

/// Checks before a long work that the file can be written; changes nothing.
/// \param argument  the option that names the file, for the message
/// \param json      standard output is used for a JSON document
/// \throws InvalidArgument if the file cannot be written, is the JSON document's output, or is a database or one of
/// SQLite's files beside it, which only ce may replace
void require_output(std::string_view argument, const std::string& path, bool json);

/// The old file stays until `writer` has ended. A pipe or a device is written directly; output to standard output or
/// standard error is appended to theirs.
/// \throws as require_output(), std::system_error naming the file if not everything could be written
void write_output(std::string_view argument, const std::string& path,
                  const std::function<void(std::ostream&)>& writer, Readers readers = Readers::everyone);

/// Opens a file whose lines are written as they come: behind what it has.
/// \param json  as in require_output()
/// \throws as require_output()
[[nodiscard]] std::ofstream open_to_append(std::string_view argument, const std::string& path, bool json);

}  // namespace ce::cli
