#include "cache/file_system.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace ce::cache {
namespace {

// Magic numbers from statfs(2) and the file systems' headers.
constexpr std::array<std::pair<std::uint32_t, std::string_view>, 15> network_types{{
    {0x00006969, "NFS"},
    {0x0000517B, "SMB"},
    {0xFF534D42, "CIFS"},
    {0xFE534D42, "SMB2"},
    {0x5346414F, "AFS"},
    {0x6B414653, "AFS"},
    {0x73757245, "Coda"},
    {0x0000564C, "NCP"},
    {0x00C36400, "Ceph"},
    {0x0BD00BD0, "Lustre"},
    {0x47504653, "GPFS"},
    {0x19830326, "BeeGFS"},
    {0xAAD7AAEA, "PanFS"},
    {0x01021997, "9P"},
    {0x65735546, "FUSE"},
}};

long type_from_system(const std::filesystem::path& path) noexcept {
  struct statfs system {};
  return ::statfs(path.c_str(), &system) == 0 ? static_cast<long>(system.f_type) : 0;
}

FileSystemType type_of = type_from_system;

/// Returns 0 or the error code.
int create_new(const std::filesystem::path& path, mode_t mode) {
  // Not open(): closing any descriptor of a file drops the locks that SQLite holds on it for this process.
  int error = ::mknod(path.c_str(), S_IFREG | mode, 0) == 0 ? 0 : errno;
  if (error != EPERM && error != ENOSYS) return error;
  // The file system has no mknod().
  const int descriptor = ::open(path.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, mode);
  if (descriptor < 0) return errno;
  ::close(descriptor);
  return 0;
}

/// The type of the folder's file system or, if the folder is missing, of its nearest existing parent's.
std::size_t longest_name(std::filesystem::path folder) {
  for (; !folder.empty(); folder = folder.parent_path()) {
    if (const long most = ::pathconf(folder.c_str(), _PC_NAME_MAX); most > 0)
      return static_cast<std::size_t>(most);
    if (!folder.has_relative_path()) break;
  }
  return NAME_MAX;
}

}  // namespace

std::string_view network_file_system(const std::filesystem::path& path) noexcept {
  const auto type = static_cast<std::uint32_t>(type_of(path));
  for (const auto& [known, name] : network_types)
    if (type == known) return name;
  return {};
}

void set_file_system_type(FileSystemType function) noexcept {
  type_of = function == nullptr ? type_from_system : function;
}

std::string dangling_link(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // a path that cannot be examined is treated as no link
  if (!fs::is_symlink(fs::symlink_status(path, ignored)) ||
      fs::status(path, ignored).type() != fs::file_type::not_found)
    return {};
  return fmt::format("a symbolic link to {}, which does not exist", fs::read_symlink(path, ignored).string());
}

std::filesystem::path real_path(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  constexpr int most_links = 40;  // the kernel's limit
  std::error_code error;
  fs::path at = fs::absolute(path, error).lexically_normal();
  for (int links = 0; links < most_links; ++links) {
    const fs::path target = fs::read_symlink(at, error);
    if (error) break;
    at = at.parent_path() / target;
  }
  const fs::path folder = fs::weakly_canonical(at.parent_path(), error);
  return error ? at : folder / at.filename();
}

std::string excess_of_name(const std::filesystem::path& database, std::string_view longest) {
  namespace fs = std::filesystem;
  const fs::path path = real_path(database);
  const std::size_t most_in_name = longest_name(path.parent_path());
  for (const fs::path& part : path.parent_path())
    if (part.string().size() > most_in_name)
      return fmt::format("the name of one of its folders has {} bytes, but the file system allows {} at most",
                         part.string().size(), most_in_name);
  if (const std::size_t bytes = path.filename().string().size(); bytes + longest.size() > most_in_name)
    return fmt::format(
        "its name has {} bytes, but {} at most are possible, because the names of files beside it are longer",
        bytes, most_in_name - std::min(most_in_name, longest.size()));
  const sqlite3_vfs* system = sqlite3_vfs_find(nullptr);
  const std::size_t most = system == nullptr ? PATH_MAX : static_cast<std::size_t>(system->mxPathname);
  if (const std::size_t bytes = path.string().size(); bytes + longest.size() > most)
    return fmt::format(
        "its path has {} bytes, but {} at most are possible, because SQLite's paths of files beside it are "
        "longer",
        bytes, most - longest.size());
  return {};
}

std::error_code create_database_file(const std::filesystem::path& path) noexcept {
  struct stat folder {};
  const bool is_shared = ::stat(path.parent_path().c_str(), &folder) == 0 && (folder.st_mode & S_ISGID) != 0;
  const int error = create_new(path, is_shared ? 0660 : 0600);
  return {error == EEXIST ? 0 : error, std::system_category()};
}

void share_as(const std::filesystem::path& database, int descriptor) noexcept {
  struct stat like {};
  struct stat own {};
  if (::stat(database.c_str(), &like) != 0 || ::fstat(descriptor, &own) != 0) return;
  // Only root may change a file's owner. If the group cannot be set it stays as it is, and gets no rights.
  const uid_t user = ::geteuid() == 0 ? like.st_uid : own.st_uid;
  bool is_of_group = own.st_gid == like.st_gid;
  if (user != own.st_uid || !is_of_group) is_of_group = ::fchown(descriptor, user, like.st_gid) == 0;
  const mode_t mode = like.st_mode & (is_of_group ? 0666 : 0600);
  static_cast<void>(::fchmod(descriptor, mode | S_IRUSR | S_IWUSR));
}

std::error_code create_beside(const std::filesystem::path& database,
                              const std::filesystem::path& path) noexcept {
  const int descriptor = ::open(path.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) return {errno, std::system_category()};
  share_as(database, descriptor);
  ::close(descriptor);
  return {};
}

bool is_own_file(const std::filesystem::path& path) noexcept {
  struct stat file {};
  return ::lstat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == ::geteuid() &&
         file.st_nlink == 1;
}

}  // namespace ce::cache
