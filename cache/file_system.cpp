#include "cache/file_system.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace ce::cache {
namespace {

// As statfs(2) and the file systems' own headers have them.
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

/// For file systems without mknod(). Returns 0 or the error code.
int create_by_opening(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) return errno;
  ::close(descriptor);
  return 0;
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
  std::error_code ignored;  // what cannot be looked at is no link
  if (!fs::is_symlink(fs::symlink_status(path, ignored)) ||
      fs::status(path, ignored).type() != fs::file_type::not_found)
    return {};
  return fmt::format("a symbolic link to {}, where there is no file",
                     fs::read_symlink(path, ignored).string());
}

std::error_code create_private_file(const std::filesystem::path& path) noexcept {
  // Not open(): closing any descriptor of a file drops the locks that SQLite holds on it for this process.
  int error = ::mknod(path.c_str(), S_IFREG | 0600, 0) == 0 ? 0 : errno;
  if (error == EPERM || error == ENOSYS) error = create_by_opening(path);
  return {error == EEXIST ? 0 : error, std::system_category()};
}

}  // namespace ce::cache
