#include "runtime/device.hpp"

#include <fmt/format.h>

#include "ce/error.hpp"

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

TensorMap Device::tensor_map(const BoxedMatrix&) const {
  throw Unsupported(name() + ": it has no bulk tensor copies");
}

MemoryHandle Device::share(void*) {
  throw Unsupported(name() + ": it cannot share its memory with another process");
}
void* Device::open_shared(const MemoryHandle&) {
  throw Unsupported(name() + ": it cannot reach the memory of another process");
}

namespace {

void* memory_from(Device& device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const Allocator& allocator = device.allocator();
  if (allocator.allocate == nullptr) return device.allocate(bytes);
  void* memory = allocator.allocate(allocator.state, bytes, device.trial_stream());
  if (memory == nullptr)
    throw OutOfMemory("Allocator::allocate", 0,
                      fmt::format("the caller's allocator returned no memory for {} bytes", bytes));
  return memory;
}

}  // namespace

Buffer::Buffer(Device& device, std::size_t bytes)
    : device_(&device), data_(memory_from(device, bytes)), size_(bytes) {}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  const Allocator& allocator = device_->allocator();
  if (allocator.allocate == nullptr) {
    device_->release(data_);
    return;
  }
  const Stream stream = device_->trial_stream();
  try {
    device_->synchronize(stream);  // an allocator's release does not wait, unlike cuMemFree
  } catch (const Error&) {
    // A fault, which the next call reports, too. No kernel runs any more.
  }
  allocator.release(allocator.state, data_, stream);
}

}  // namespace ce::runtime
