#include "runtime/host/stacks.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "ce/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define CE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CE_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(CE_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace ce::runtime::host {
namespace {

// An odd number of cache lines, so that the tops of the stacks do not all compete for the same few sets of
// the cache.
#if defined(CE_ADDRESS_SANITIZER)
constexpr std::size_t bytes_each = 4099 * 64;  // instrumented frames are larger
#else
constexpr std::size_t bytes_each = 1037 * 64;
#endif

}  // namespace

void Stacks::reserve(std::size_t count) {
  if (count <= count_) return;
  unmap();
  void* const memory = ::mmap(nullptr, count * bytes_each, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw OutOfMemory("mmap of the fibers' stacks", errno, std::strerror(errno));
  memory_ = static_cast<std::byte*>(memory);
  count_ = count;
}

Stack Stacks::operator[](std::size_t i) const { return {memory_ + i * bytes_each, bytes_each}; }

void Stacks::unmap() noexcept {
  if (memory_ == nullptr) return;
  // The next mapping at this address must not inherit AddressSanitizer's knowledge of our frames.
  forget_old_frames({memory_, count_ * bytes_each});
  ::munmap(memory_, count_ * bytes_each);
  memory_ = nullptr;
  count_ = 0;
}

#if defined(CE_ADDRESS_SANITIZER)
// These functions are not instrumented themselves: their own frames could be in the memory that the calls release.
#define CE_NOT_INSTRUMENTED __attribute__((no_sanitize("address")))

void forget_old_frames(Stack stack) noexcept { ASAN_UNPOISON_MEMORY_REGION(stack.bottom, stack.size); }

CE_NOT_INSTRUMENTED void StackSwitch::leave(Stack to) noexcept {
  __sanitizer_start_switch_fiber(&fake_stack_, to.bottom, to.size);
}
CE_NOT_INSTRUMENTED void StackSwitch::leave_for_ever(Stack to) noexcept {
  __sanitizer_start_switch_fiber(nullptr, to.bottom, to.size);
}
CE_NOT_INSTRUMENTED void StackSwitch::arrive(Stack* from) noexcept {
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &size);
  if (from != nullptr) *from = {static_cast<std::byte*>(const_cast<void*>(bottom)), size};
}
#else
void forget_old_frames(Stack) noexcept {}
void StackSwitch::leave(Stack) noexcept {}
void StackSwitch::leave_for_ever(Stack) noexcept {}
void StackSwitch::arrive(Stack*) noexcept {}
#endif

}  // namespace ce::runtime::host
