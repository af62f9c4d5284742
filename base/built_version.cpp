#include "base/built_version.hpp"

namespace ce {

std::string_view built_version() noexcept { return CE_BUILT_VERSION; }

}  // namespace ce
