#include "runtime/device.hpp"

#include <fmt/format.h>

namespace ce::runtime {

std::string Model::key() const {
  return fmt::format("{}|cc={}|sm={}|l2={}|smem={}/{}|regs={}|threads={}|mig={}", name, capability,
                     multiprocessors, l2_bytes, shared_bytes_per_block, shared_bytes_per_multiprocessor,
                     registers_per_multiprocessor, threads_per_multiprocessor,
                     mig_slice.empty() ? "none" : mig_slice);
}

int Device::resident_blocks(Function, const Launch& launch) const {
  return model().multiprocessors * static_cast<int>(launch.cluster);
}

Buffer::Buffer(Device& device, std::size_t bytes)
    : device_(&device), data_(bytes > 0 ? device.allocate(bytes) : nullptr), size_(bytes) {}

Buffer::~Buffer() {
  if (data_ != nullptr) device_->release(data_);
}

}  // namespace ce::runtime
