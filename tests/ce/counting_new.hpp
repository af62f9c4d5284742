#pragma once
/// \file
/// For programs linked with counting_new.cpp, which replaces operator new.

namespace ce::test {

/// How often the calling thread has allocated.
[[nodiscard]] int allocations() noexcept;

}  // namespace ce::test
