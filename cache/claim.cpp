#include "cache/claim.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "ce/base/error.hpp"

namespace ce::cache {
namespace {

/// Whether the path still leads to the open file: whoever had the claim before has removed it.
bool is_at(const std::filesystem::path& file, int descriptor) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::stat(file.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

[[noreturn]] void fail(const std::filesystem::path& file, const char* what) {
  throw DatabaseError(fmt::format("cannot {} a file in {} ({})", what, file.parent_path().string(),
                                  std::generic_category().message(errno)));
}

}  // namespace

std::optional<Claim> Claim::take(const std::filesystem::path& file) {
  for (;;) {
    Claim claim;
    claim.descriptor_ =
        OwnDescriptor([&] { return ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); });
    if (claim.descriptor_.get() < 0) fail(file, "open");
    while (::flock(claim.descriptor_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      if (errno != EINTR) fail(file, "lock");
    }
    if (!is_at(file, claim.descriptor_.get())) continue;
    claim.file_ = file;
    claim.owner_ = ::getpid();
    return claim;
  }
}

Claim::~Claim() {
  // A child of fork() that has a copy of this has no claim.
  if (descriptor_.get() < 0 || owner_ != ::getpid()) return;
  ::unlink(file_.c_str());
  ::flock(descriptor_.get(), LOCK_UN);  // a child that was forked just now still has it open
}

void Claim::swap(Claim& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(owner_, other.owner_);
}

}  // namespace ce::cache
