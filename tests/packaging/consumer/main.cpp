// Uses the public face of ce alone: prints its version and needs its library to link.

#include <ce/base/error.hpp>
#include <ce/ce.hpp>
#include <ce/version.hpp>
#include <iostream>

#if __has_include("tuner/search.hpp") || __has_include("runtime/device.hpp") || \
                                                       __has_include("cache/cache.hpp")
#error "a consumer can include the rooms behind the public headers"
#endif

int main() {
  try {
    throw ce::InvalidArgument("rows", "-1", "a positive number");
  } catch (const ce::Error& error) {
    std::cerr << error.what() << '\n';
  }
  if (ce::version() != CE_VERSION) {
    std::cerr << "the library is of version " << ce::version() << ", its headers of " << CE_VERSION << '\n';
    return 1;
  }
  std::cout << ce::version() << '\n';
}
