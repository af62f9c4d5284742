#include "python/csrc/torch_memory.hpp"

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <array>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace ce_torch {
namespace {

/// Functions that only torch with CUDA has, in a library that torch without CUDA does not load.
struct CudaShim {
  using Guard = struct GuardOpaque*;
  AOTITorchError (*get_current_stream)(std::int32_t device, void** stream) = nullptr;
  AOTITorchError (*create_stream_guard)(void* stream, std::int32_t device, Guard* guard) = nullptr;
  AOTITorchError (*delete_stream_guard)(Guard guard) = nullptr;

  static const CudaShim& get() {
    static const CudaShim shim;
    return shim;
  }

 private:
  CudaShim() {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr)
      throw std::runtime_error("ce: this torch has no CUDA: libtorch_cuda.so is not loaded");
    find(library, "aoti_torch_get_current_cuda_stream", get_current_stream);
    find(library, "aoti_torch_create_cuda_stream_guard", create_stream_guard);
    find(library, "aoti_torch_delete_cuda_stream_guard", delete_stream_guard);
  }

  template <class Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(std::string("ce: libtorch_cuda.so has no ") + name);
  }
};

/// Byte tensors, found by their memory.
class Tensors {
 public:
  static Tensors& get() {
    static auto* tensors = new Tensors;  // contexts outlive the objects that a program destroys at its end
    return *tensors;
  }

  void keep(int device, void* memory, AtenTensorHandle tensor, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    tensors_[memory] = {tensor, bytes};
    bytes_[device] += bytes;
  }
  /// \returns null for memory that is not registered
  AtenTensorHandle take(int device, void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = tensors_.find(memory);
    if (found == tensors_.end()) return nullptr;
    const auto [tensor, bytes] = found->second;
    tensors_.erase(found);
    bytes_[device] -= bytes;
    return tensor;
  }
  std::int64_t bytes(int device) {
    const std::lock_guard lock(mutex_);
    return bytes_[device];
  }

 private:
  struct Kept {
    AtenTensorHandle tensor;
    std::int64_t bytes;
  };
  std::mutex mutex_;
  std::unordered_map<void*, Kept> tensors_;
  std::unordered_map<int, std::int64_t> bytes_;
};

/// torch's allocator allocates a block for the current stream, and takes it back for that stream.
class StreamGuard {
 public:
  StreamGuard(ce_stream stream, int device) : shim_(CudaShim::get()) {
    if (shim_.create_stream_guard(stream, device, &guard_) != AOTI_TORCH_SUCCESS) guard_ = nullptr;
  }
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard() {
    if (guard_ != nullptr) static_cast<void>(shim_.delete_stream_guard(guard_));
  }
  explicit operator bool() const noexcept { return guard_ != nullptr; }

 private:
  const CudaShim& shim_;
  CudaShim::Guard guard_ = nullptr;
};

int device_of(void* state) { return static_cast<int>(reinterpret_cast<std::intptr_t>(state)); }

}  // namespace

ce_stream current_stream(int device) {
  void* stream = nullptr;
  if (CudaShim::get().get_current_stream(device, &stream) != AOTI_TORCH_SUCCESS)
    throw std::runtime_error("ce: torch has no current stream of cuda:" + std::to_string(device));
  return static_cast<ce_stream>(stream);
}

void* allocate(void* state, std::size_t bytes, ce_stream stream) {
  const int device = device_of(state);
  try {
    const StreamGuard guard(stream, device);
    if (!guard) return nullptr;
    const auto size = static_cast<std::int64_t>(bytes), stride = std::int64_t{1};
    AtenTensorHandle tensor = nullptr;
    if (aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_uint8(), aoti_torch_device_type_cuda(),
                                 device, &tensor) != AOTI_TORCH_SUCCESS)
      return nullptr;
    void* memory = nullptr;
    if (aoti_torch_get_data_ptr(tensor, &memory) != AOTI_TORCH_SUCCESS) {
      static_cast<void>(aoti_torch_delete_tensor_object(tensor));
      return nullptr;
    }
    Tensors::get().keep(device, memory, tensor, size);
    return memory;
  } catch (const std::exception&) {
    return nullptr;  // the context's error says how many bytes it requested
  }
}

void release(void* state, void* memory, ce_stream stream) {
  const int device = device_of(state);
  const AtenTensorHandle tensor = Tensors::get().take(device, memory);
  if (tensor == nullptr) return;
  const StreamGuard guard(stream, device);
  static_cast<void>(aoti_torch_delete_tensor_object(tensor));
}

std::int64_t allocated(int device) { return Tensors::get().bytes(device); }

}  // namespace ce_torch
