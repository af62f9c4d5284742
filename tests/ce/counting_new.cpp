#include "tests/ce/counting_new.hpp"

#include <cstdlib>
#include <new>

namespace {
thread_local int count = 0;
}  // namespace

int ce::test::allocations() noexcept { return count; }

// Array forms come here too; only over-aligned ones do not. A sanitizer has a nothrow form of its own, which would not
// fit the delete here.
void* operator new(std::size_t bytes) {
  ++count;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
