#include "runtime/host/shared_object.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/file_size_signal.hpp"
#include "ce/error.hpp"
#include "runtime/host/elf_image.hpp"
#include "runtime/temporary_folder.hpp"

namespace ce::runtime::host {
namespace {

/// No kernel can be loaded here. This is not a DeviceError, for which a search would reject the config.
[[noreturn]] void throw_obstacle(std::string_view what, int code, std::string_view remedy) {
  throw Error(ErrorKind::device, fmt::format("no kernel of the host device can be loaded: {} ({}): {}", what,
                                             std::strerror(code), remedy));
}

bool is_want_of_room(int code) {
  return code == ENOSPC || code == EDQUOT || code == ENOMEM || code == EMFILE || code == ENFILE;
}

/// A file without a name: in memory, or an unlinked file if the system has no memfd.
int anonymous_file() {
  if (const int descriptor = ::memfd_create("ce-kernel", MFD_CLOEXEC); descriptor >= 0) return descriptor;
  const std::filesystem::path folder = temporary_folder();
  std::string pattern = (folder / "ce-kernel-XXXXXX").string();
  const int descriptor = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (descriptor < 0 && is_want_of_room(errno)) throw OutOfMemory("mkostemp", errno, std::strerror(errno));
  if (descriptor < 0)
    throw_obstacle(fmt::format("no file can be created in {}", folder.string()), errno,
                   "name another folder in TMPDIR");
  ::unlink(pattern.c_str());
  return descriptor;
}

/// Called after dlopen() failed for a valid image. \throws Error(device) if it would fail for any image
void expect_executable(int descriptor, const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) throw_obstacle("there is no " + path, errno, "mount /proc");
  constexpr std::size_t some = 1;
  void* const page = ::mmap(nullptr, some, PROT_READ | PROT_EXEC, MAP_PRIVATE, descriptor, 0);
  if (page == MAP_FAILED)
    throw_obstacle(
        fmt::format("the system does not execute files in memory or in {}", temporary_folder().string()),
        errno, "name a folder in TMPDIR that is not mounted noexec");
  ::munmap(page, some);
}

std::string path_of(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

bool loaded_already(int descriptor) {
  void* const library = ::dlopen(path_of(descriptor).c_str(), RTLD_NOLOAD | RTLD_NOW);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

/// dlopen() identifies libraries by the path that they were loaded from. If a library outlives its dlclose(), a path
/// with the same descriptor number would silently return the old kernel; so such numbers are skipped.
int anonymous_file_with_new_path() {
  std::vector<int> passed_over;
  int descriptor = anonymous_file();
  while (loaded_already(descriptor)) {
    passed_over.push_back(descriptor);
    descriptor = anonymous_file();
  }
  for (const int other : passed_over) ::close(other);
  return descriptor;
}

void write_all(int descriptor, std::span<const std::byte> bytes) {
  const FileSizeSignalBlock no_signal;
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw OutOfMemory("write of a kernel's image", errno, std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

}  // namespace

SharedObject::SharedObject(std::span<const std::byte> image) {
  try {
    open(image);
  } catch (...) {
    close();
    throw;
  }
}

SharedObject::~SharedObject() { close(); }

void SharedObject::open(std::span<const std::byte> image) {
  // The file stays open as long as the library is loaded, so that no other file gets its number.
  if (const std::string why = incompleteness(image); !why.empty())
    throw DeviceError("loading a kernel's image", 0, why);
  descriptor_ = anonymous_file_with_new_path();
  write_all(descriptor_, image);
  const std::string path = path_of(descriptor_);
  library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    const std::string why = ::dlerror();
    expect_executable(descriptor_, path);
    throw DeviceError("dlopen of a kernel's image", 0, why);
  }
  const auto* version = static_cast<const int*>(symbol("ce_host_abi"));
  if (*version != host_abi::version)
    throw DeviceError(
        "loading a kernel's image", 0,
        fmt::format("it was compiled for version {} of host_abi.cuh, but this ce has version {}", *version,
                    host_abi::version));
}

void SharedObject::close() noexcept {
  if (library_ != nullptr) ::dlclose(library_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void* SharedObject::symbol(const std::string& name) const {
  void* const address = ::dlsym(library_, name.c_str());
  if (address == nullptr)
    throw DeviceError(fmt::format("dlsym of {}", name), 0, "the kernel's image has no such symbol");
  return address;
}

Function SharedObject::function(std::string_view entry) const {
  const std::lock_guard lock(mutex_);
  auto found = kernels_.find(entry);
  if (found == kernels_.end()) {
    const std::string name(entry);
    Kernel kernel;
    kernel.name = name;
    kernel.entry = reinterpret_cast<void (*)(const void*)>(symbol(name));
    kernel.current = reinterpret_cast<host_abi::Thread** (*)()>(symbol("ce_host_thread"));
    kernel.max_threads = *static_cast<const int*>(symbol("ce_host_threads_" + name));
    found = kernels_.emplace(name, std::move(kernel)).first;
  }
  return {&found->second};
}

Resources SharedObject::resources(Function) const { return {}; }

}  // namespace ce::runtime::host
