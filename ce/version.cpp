#include "ce/version.hpp"

namespace ce {

std::string_view version() noexcept { return CE_VERSION; }

}  // namespace ce
