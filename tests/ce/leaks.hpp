#pragma once
/// \file
/// What LeakSanitizer is told. Without it, nothing happens.

namespace ce::test {

/// For a child of fork(): LeakSanitizer would wait there for threads of the parent, and take for lost what they own.
void search_no_leaks() noexcept;

}  // namespace ce::test
