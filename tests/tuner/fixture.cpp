#include "tests/tuner/fixture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/digest.hpp"
#include "ce/error.hpp"
#include "runtime/host/device.hpp"

namespace ce::test {
namespace {

std::string digest_of(std::span<const std::byte> image) {
  return digest({std::string_view(reinterpret_cast<const char*>(image.data()), image.size())});
}

}  // namespace

Folder::Folder() {
  std::string name = std::filesystem::temp_directory_path() / "ce-test-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

generator::Problem small_problem() {
  return {.operation = generator::Operation::softmax, .dtype = DType::f32, .rows = 40, .columns = 100};
}

tuner::Settings quick_settings() {
  tuner::Settings settings;
  settings.search.most_configs = 4;
  settings.search.screening_samples = 2;
  settings.search.semifinalists = 3;
  settings.search.semifinal_samples = 3;
  settings.search.final_samples = 6;
  settings.search.finalists = 2;
  settings.search.play_off = {};
  settings.scratch_bytes = std::int64_t{1} << 20;
  return settings;
}

bool is_of_screening(const cache::Measurement& measurement) {
  return measurement.stage == cache::stage_of_screenings &&
         static_cast<int>(measurement.samples_us.size()) == quick_settings().search.screening_samples;
}

/// Tells the device which of its entry points belong to an image with a fault.
class FaultyDevice::WatchedModule : public runtime::Module {
 public:
  WatchedModule(FaultyDevice& device, std::unique_ptr<runtime::Module> inner, Planted planted)
      : device_(device), inner_(std::move(inner)), planted_(std::move(planted)) {}

  runtime::Function function(std::string_view entry) const override {
    const runtime::Function found = inner_->function(entry);
    const std::lock_guard lock(device_.mutex_);
    device_.functions_[found.handle] = planted_;
    return found;
  }
  runtime::Resources resources(runtime::Function function) const override {
    return inner_->resources(function);
  }

 private:
  FaultyDevice& device_;
  std::unique_ptr<runtime::Module> inner_;
  Planted planted_;
};

FaultyDevice::FaultyDevice(std::function<Fault(int)> fault_of)
    : DeviceDecorator(runtime::open_host_device()), fault_of_(std::move(fault_of)) {}

runtime::Binary FaultyDevice::compile(const runtime::CompileRequest& request) {
  const std::string problem = generator::code_text(small_problem()) + " ";
  if (!request.name.starts_with(problem)) return DeviceDecorator::compile(request);  // of a ceiling
  Fault fault = Fault::none;
  {
    const std::lock_guard lock(mutex_);
    fault = fault_of_(static_cast<int>(configs_.size()));
    configs_[request.name.substr(problem.size())] = fault;
  }
  runtime::CompileRequest edited = request;
  if (fault == Fault::no_compile) edited.text += "#error planted by the test\n";
  // Digests tell images apart only where no two of them are the same.
  edited.text +=
      fmt::format("static const char name_of_the_test[] __attribute__((used)) = \"{}\";\n", request.name);
  runtime::Binary binary = DeviceDecorator::compile(edited);
  const std::lock_guard lock(mutex_);
  images_[digest_of(binary.image)] = {request.name.substr(problem.size()), fault};
  return binary;
}

std::unique_ptr<runtime::Module> FaultyDevice::load(std::span<const std::byte> image) {
  Planted planted;
  {
    const std::lock_guard lock(mutex_);
    const auto known = images_.find(digest_of(image));
    if (known != images_.end()) planted = known->second;
  }
  return std::make_unique<WatchedModule>(*this, DeviceDecorator::load(image), std::move(planted));
}

void FaultyDevice::launch(std::span<const runtime::KernelLaunch> kernels, const void* arguments,
                          std::size_t argument_bytes, Stream stream) {
  for (const runtime::KernelLaunch& kernel : kernels) {
    Fault fault = Fault::none;
    {
      const std::lock_guard lock(mutex_);
      const Planted& planted = functions_.at(kernel.function.handle);
      fault = planted.fault;
      launched_ = planted.config;
    }
    if (fault == Fault::wrong) continue;
    if (fault == Fault::fault) throw DeviceError("launch", 700, "planted by the test");
    DeviceDecorator::launch({&kernel, 1}, arguments, argument_bytes, stream);
  }
}

void* FaultyDevice::allocate(std::size_t bytes) {
  void* data = DeviceDecorator::allocate(bytes);
  const std::lock_guard lock(mutex_);
  live_.insert(data);
  return data;
}

void FaultyDevice::release(void* data) noexcept {
  {
    const std::lock_guard lock(mutex_);
    live_.erase(data);
  }
  DeviceDecorator::release(data);
}

std::set<std::string> FaultyDevice::with(Fault fault) const {
  const std::lock_guard lock(mutex_);
  std::set<std::string> found;
  for (const auto& [config, planted] : configs_)
    if (planted == fault) found.insert(config);
  return found;
}

int FaultyDevice::compiled() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(configs_.size());
}

std::string FaultyDevice::launched() const {
  const std::lock_guard lock(mutex_);
  return launched_;
}

std::size_t FaultyDevice::allocations() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

std::vector<float> TimedDevice::time(int samples, const std::function<void()>& before,
                                     const std::function<void()>& timed) {
  before();
  timed();
  return std::vector<float>(static_cast<std::size_t>(samples), static_cast<float>(us_of_(launched())));
}

}  // namespace ce::test
