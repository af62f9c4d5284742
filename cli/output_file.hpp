#pragma once
/// \file
/// Files that commands write: whole, in the place of what was there, or not at all.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace ce::cli {

/// Who may read a file that was not there before.
enum class Readers : std::uint8_t { everyone, the_user };

/// Whether what is written to the file comes out where standard output does, as with /dev/stdout.
[[nodiscard]] bool is_standard_output(const std::string& path);

/// For what comes before a long work: leaves everything as it is.
/// \param argument  that names the file, for the message
/// \param json      standard output is a document's
/// \throws InvalidArgument where the file cannot be written, is a document's, or is a database, which nothing but ce
///         replaces
void require_output(std::string_view argument, const std::string& path, bool json);

/// Until `writer` is done, what was there stays. A pipe or a device is written as it is; what comes out where standard
/// output or standard error does, behind what they have written.
/// \throws as require_output(), std::system_error naming the file where not all could be written
void write_output(std::string_view argument, const std::string& path,
                  const std::function<void(std::ostream&)>& writer, Readers readers = Readers::everyone);

}  // namespace ce::cli
