#include "cli/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

#include "base/own_descriptor.hpp"
#include "cache/file_system.hpp"
#include "cache/recognize.hpp"
#include "ce/error.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

namespace fs = std::filesystem;

/// A new file in the folder of the output file. It is removed unless it replaces that file; if the file system supports
/// files without a name, also when the process is killed.
class Draft {
 public:
  /// \param like  the file to be replaced, if there is one
  Draft(const fs::path& of, const fs::file_status& like, Readers readers)
      : path_(of.parent_path() /
              fmt::format(".ce-tune.{}.draft", ::getpid())) {  // fits if the file's name does
    const mode_t mode = readers == Readers::everyone ? 0666 : 0600;
    const fs::path folder = of.has_parent_path() ? of.parent_path() : fs::path(".");
    ::unlink(path_.c_str());  // left by a killed process with the same process id
    descriptor_ =
        OwnDescriptor([&] { return ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode); });
    is_named_ = descriptor_.get() < 0 || !fs::exists(written(), error_);
    error_.clear();
    if (is_named_)
      descriptor_ =
          OwnDescriptor([&] { return ::open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode); });
    if (descriptor_.get() < 0 ||
        (fs::exists(like) && ::fchmod(descriptor_.get(), static_cast<mode_t>(like.permissions())) != 0))
      error_ = {errno, std::generic_category()};
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    std::error_code gone;
    if (is_named_) fs::remove(path_, gone);
  }

  /// Why there is no draft.
  [[nodiscard]] std::error_code error() const noexcept { return error_; }
  /// The stream to write to.
  [[nodiscard]] fs::path written() const {
    return is_named_ ? path_ : fs::path(fmt::format("/proc/self/fd/{}", descriptor_.get()));
  }
  [[nodiscard]] std::error_code replace(const fs::path& file) {
    if (!is_named_ && ::linkat(AT_FDCWD, written().c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return {errno, std::generic_category()};
    is_named_ = true;
    std::error_code error;
    fs::rename(path_, file, error);
    return error;
  }

 private:
  fs::path path_;
  OwnDescriptor descriptor_;
  bool is_named_ = false;
  std::error_code error_;
};

/// Whether the descriptor leads to the same file as the path; false for /dev/null.
bool leads_to(int descriptor, const std::string& path) {
  struct stat of_path {};
  struct stat of_descriptor {};
  struct stat nowhere {};
  if (::stat(path.c_str(), &of_path) != 0 || ::fstat(descriptor, &of_descriptor) != 0) return false;
  const auto same = [](const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
  };
  if (::stat("/dev/null", &nowhere) == 0 && same(of_path, nowhere)) return false;
  return same(of_path, of_descriptor);
}

/// For a file that this process has open already: opening it again would start at its beginning, over its contents.
std::ostream* standard_stream(const std::string& path) {
  if (leads_to(STDOUT_FILENO, path)) return &std::cout;
  if (leads_to(STDERR_FILENO, path)) return &std::cerr;
  return nullptr;
}

struct Target {
  fs::path path;  ///< path behind links
  fs::file_status status;
  bool has_name = true;  ///< false for a file that was deleted while open, as /dev/stdout may be

  [[nodiscard]] bool is_replaced() const {
    return !fs::exists(status) || (fs::is_regular_file(status) && has_name);
  }
};

[[noreturn]] void refuse(std::string_view argument, const std::string& path, const std::string& expected) {
  throw InvalidArgument(argument, in_quotes(path), expected);
}

std::string unwritable(const std::error_code& why) {
  const char* limits =
      why == std::errc::filename_too_long ? " (names have 255 bytes at most, paths 4095)" : "";
  return fmt::format("a file that can be written; {}{}", why.message(), limits);
}

Target target_of(std::string_view argument, const std::string& path) {
  if (const std::string link = cache::dangling_link(path); !link.empty())
    refuse(argument, path, "a file that can be written; this is " + link);
  std::error_code error;
  Target target{.path = path, .status = fs::status(path, error)};
  if (error == std::errc::filename_too_long) refuse(argument, path, unwritable(error));
  if (fs::is_regular_file(target.status)) {
    target.path = fs::canonical(path, error);
    target.has_name = !error;
    if (!target.has_name) target.path = path;
  }
  if (fs::is_directory(target.status)) refuse(argument, path, "a file, not a folder");
  if (fs::is_regular_file(target.status) && cache::is_database(target.path))
    refuse(argument, path, "a file that is not a database");
  if (cache::belongs_to_database(target.path))
    refuse(argument, path, "a file that is not a database's log, lock or journal");
  if (fs::exists(target.status) && ::access(target.path.c_str(), W_OK) != 0)
    refuse(argument, path, unwritable({errno, std::generic_category()}));
  return target;
}

/// \param json  standard output is used for a JSON document
void refuse_document(std::string_view argument, const std::string& path, bool json) {
  if (json && is_standard_output(path))
    refuse(argument, path, "a file together with --json, which writes to the standard output");
}

void require(const Draft& draft, std::string_view argument, const std::string& path) {
  if (draft.error()) refuse(argument, path, unwritable(draft.error()));
}

[[noreturn]] void write_failed(const std::string& path) {
  throw std::system_error(errno != 0 ? errno : EIO, std::generic_category(), "cannot write " + path);
}

void write_into(const fs::path& file, const std::string& path,
                const std::function<void(std::ostream&)>& writer) {
  errno = 0;
  std::ofstream stream(file, std::ios::binary);
  if (stream) writer(stream);
  stream.close();
  if (!stream) write_failed(path);
}

}  // namespace

bool is_standard_output(const std::string& path) { return leads_to(STDOUT_FILENO, path); }

std::ofstream open_to_append(std::string_view argument, const std::string& path, bool json) {
  refuse_document(argument, path, json);
  if (standard_stream(path) == nullptr) static_cast<void>(target_of(argument, path));
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::app);
  if (!file) refuse(argument, path, unwritable({errno, std::generic_category()}));
  return file;
}

void require_output(std::string_view argument, const std::string& path, bool json) {
  refuse_document(argument, path, json);
  if (standard_stream(path) != nullptr) return;
  const Target target = target_of(argument, path);
  if (target.is_replaced()) require(Draft(target.path, target.status, Readers::the_user), argument, path);
}

void write_output(std::string_view argument, const std::string& path,
                  const std::function<void(std::ostream&)>& writer, Readers readers) {
  if (std::ostream* stream = standard_stream(path)) {
    errno = 0;
    writer(*stream);
    if (!stream->flush()) write_failed(path);
    return;
  }
  const Target target = target_of(argument, path);
  if (!target.is_replaced()) return write_into(target.path, path, writer);
  Draft draft(target.path, target.status, readers);
  require(draft, argument, path);
  write_into(draft.written(), path, writer);
  const std::error_code error = draft.replace(target.path);
  if (error) throw std::system_error(error, "cannot write " + path);
}

}  // namespace ce::cli
