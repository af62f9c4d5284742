#include "tests/ce/leaks.hpp"

#if defined(__SANITIZE_ADDRESS__)

namespace {
bool searches = true;
}

extern "C" {

int __lsan_is_turned_off() { return searches ? 0 : 1; }

/// Where ranks fail, memory that they may still come to is left as it is.
const char* __lsan_default_suppressions() { return "leak:ce::gather_from_ranks\n"; }
}

namespace ce::test {
void search_no_leaks() noexcept { searches = false; }
}  // namespace ce::test

#else

namespace ce::test {
void search_no_leaks() noexcept {}
}  // namespace ce::test

#endif
