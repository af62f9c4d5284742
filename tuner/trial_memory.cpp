#include "tuner/trial_memory.hpp"

#include <algorithm>
#include <cstring>

namespace ce::tuner {
namespace {

bool is_repeated_byte(const generator::TrialTensor& tensor) { return tensor.initial.size() == 1; }
bool needs_copy(const generator::TrialTensor& tensor) { return tensor.changes && !is_repeated_byte(tensor); }

}  // namespace

TrialMemory::TrialMemory(runtime::Device& device, generator::Trial trial)
    : device_(device), trial_(std::move(trial)) {
  for (const generator::TrialTensor& tensor : trial_.tensors) {
    Slot& slot = slots_.emplace_back();
    slot.memory = runtime::Buffer(device_, tensor.bytes);
    fill(tensor, slot.memory);
    if (needs_copy(tensor)) {
      slot.pristine = runtime::Buffer(device_, tensor.bytes);
      device_.copy(slot.pristine.data(), slot.memory.data(), tensor.bytes, device_.trial_stream());
    }
    void* pointer = slot.memory.bytes() + tensor.offset;
    for (const std::size_t argument : tensor.arguments)
      std::memcpy(reinterpret_cast<std::byte*>(&trial_.arguments) + argument, &pointer, sizeof pointer);
  }
  // Other kernels used this memory before. The copy kernel is loaded here, not beside a kernel under trial.
  reset_eviction_priorities();
  device_.synchronize(device_.trial_stream());
}

void TrialMemory::fill(const generator::TrialTensor& tensor, const runtime::Buffer& memory) {
  if (is_repeated_byte(tensor)) {
    device_.fill(memory.data(), static_cast<unsigned char>(tensor.initial.front()), memory.size(),
                 device_.trial_stream());
    return;
  }
  std::size_t filled = std::min(tensor.initial.size(), memory.size());
  device_.upload(memory.data(), tensor.initial.data(), filled);
  while (filled < memory.size()) {
    const std::size_t more = std::min(filled, memory.size() - filled);
    device_.copy(memory.bytes() + filled, memory.data(), more, device_.trial_stream());
    filled += more;
  }
}

void TrialMemory::restore() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const generator::TrialTensor& tensor = trial_.tensors[i];
    if (!tensor.changes) continue;
    if (is_repeated_byte(tensor))
      fill(tensor, slots_[i].memory);
    else
      device_.copy(slots_[i].memory.data(), slots_[i].pristine.data(), tensor.bytes, device_.trial_stream());
  }
}

void TrialMemory::reset_eviction_priorities() {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (!is_repeated_byte(trial_.tensors[i]))
      device_.reset_eviction_priority(slots_[i].memory.data(), slots_[i].memory.size(),
                                      device_.trial_stream());
}

void TrialMemory::launch(const Kernel& kernel, std::int64_t most_clusters) const {
  kernel.launch(trial_.problem, trial_.arguments, device_.trial_stream(), most_clusters);
}

std::vector<std::vector<std::byte>> TrialMemory::run(const Kernel& kernel, std::int64_t most_clusters) {
  restore();
  launch(kernel, most_clusters);
  reset_eviction_priorities();
  device_.synchronize(device_.trial_stream());
  std::vector<std::vector<std::byte>> tensors;
  for (const Slot& slot : slots_) {
    tensors.emplace_back(slot.memory.size());
    device_.download(tensors.back().data(), slot.memory.data(), slot.memory.size());
  }
  return tensors;
}

}  // namespace ce::tuner
