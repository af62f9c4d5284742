#include "runtime/host/report.hpp"

#include <fmt/format.h>

namespace ce::runtime::host {

DeviceError Report::error(const host_abi::Block& block, std::string_view message) const {
  return {fmt::format("launch of {}", kernel_), 0,
          fmt::format("block {}: {} (CE_HOST_SEED={})", block.index, message, seed_)};
}

DeviceError Report::mistake(const ThreadState& thread, std::string_view message,
                            host_abi::Place place) const {
  return error(*thread.block, fmt::format("thread {} {} at {}", thread.index, message, text(place)));
}

}  // namespace ce::runtime::host
