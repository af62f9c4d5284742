#pragma once
/// \file
/// A Device that hands every call to another one, for tests that change one of them.

#include <memory>
#include <utility>

#include "runtime/device.hpp"

namespace ce::test {

class DeviceDecorator : public runtime::Device {
 public:
  explicit DeviceDecorator(std::unique_ptr<runtime::Device> inner) : inner_(std::move(inner)) {}

  const runtime::Model& model() const override { return inner_->model(); }
  std::string name() const override { return inner_->name(); }
  std::string compiler() const override { return inner_->compiler(); }
  runtime::Environment environment() const override { return inner_->environment(); }
  runtime::Binary compile(const runtime::CompileRequest& request) override {
    return inner_->compile(request);
  }
  int parallel_compiles() const override { return inner_->parallel_compiles(); }
  std::unique_ptr<runtime::Module> load(std::span<const std::byte> image) override {
    return inner_->load(image);
  }
  void launch(std::span<const runtime::KernelLaunch> kernels, const void* arguments,
              std::size_t argument_bytes, Stream stream) override {
    inner_->launch(kernels, arguments, argument_bytes, stream);
  }
  bool fits(runtime::Function function, const runtime::Launch& launch) const override {
    return inner_->fits(function, launch);
  }
  int resident_blocks(runtime::Function function, const runtime::Launch& launch) const override {
    return inner_->resident_blocks(function, launch);
  }
  void* allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void release(void* data) noexcept override { inner_->release(data); }
  std::size_t free_bytes() const override { return inner_->free_bytes(); }
  void upload(void* device, const void* host, std::size_t bytes) override {
    inner_->upload(device, host, bytes);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    inner_->download(host, device, bytes);
  }
  void fill(void* device, unsigned char value, std::size_t bytes, Stream stream) override {
    inner_->fill(device, value, bytes, stream);
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    inner_->copy(to, from, bytes, stream);
  }
  void reset_eviction_priority(const void* data, std::size_t bytes, Stream stream) override {
    inner_->reset_eviction_priority(data, bytes, stream);
  }
  void download(void* host, const void* device, std::size_t bytes, Stream stream) override {
    inner_->download(host, device, bytes, stream);
  }
  runtime::PointerKind pointer_kind(const void* pointer) const override {
    return inner_->pointer_kind(pointer);
  }
  bool capturing(Stream stream) const override { return inner_->capturing(stream); }
  void synchronize(Stream stream) override { inner_->synchronize(stream); }
  bool is_idle(Stream stream) override { return inner_->is_idle(stream); }
  Stream trial_stream() override { return inner_->trial_stream(); }
  std::vector<float> time(int samples, const std::function<void()>& before,
                          const std::function<void()>& timed) override {
    return inner_->time(samples, before, timed);
  }
  TensorMap tensor_map(const runtime::BoxedMatrix& matrix) const override {
    return inner_->tensor_map(matrix);
  }
  runtime::MatmulLibrary& matmuls() override { return inner_->matmuls(); }

 private:
  std::unique_ptr<runtime::Device> inner_;
};

}  // namespace ce::test
