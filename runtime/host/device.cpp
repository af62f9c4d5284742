#include "runtime/host/device.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "base/environment.hpp"
#include "base/floating_environment.hpp"
#include "ce/error.hpp"
#include "runtime/host/compiler.hpp"
#include "runtime/host/matmul.hpp"
#include "runtime/host/memory.hpp"
#include "runtime/host/scheduler.hpp"
#include "runtime/host/shared_object.hpp"

namespace ce::runtime {
namespace {

constexpr std::uint64_t default_seed = 1;
constexpr int shared_bytes_per_block = 227 * 1024;  // like an H100's
constexpr std::uint32_t largest_cluster = 16;       // like an H100's, with the opt-in

std::uint64_t seed_from_environment() {
  const std::optional<std::string> text = environment_variable("CE_HOST_SEED");
  if (!text) return default_seed;
  std::uint64_t seed = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, seed);
  if (error != std::errc{} || stop != end)
    throw InvalidArgument("CE_HOST_SEED", *text, "a whole number from 0 to 2^64 - 1");
  return seed;
}

int core_count() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

utsname system_names() {
  utsname names{};
  ::uname(&names);  // this can only fail for an invalid pointer
  return names;
}

/// The text behind `key` and its colon in a file of lines like "key : value"; empty if there is none.
std::string value_in(const char* file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

/// Bytes, from a line such as "MemAvailable:  123 kB"; 0 if the file has no such line.
std::size_t memory_in_bytes(std::string_view key) {
  return std::strtoull(value_in("/proc/meminfo", key).c_str(), nullptr, 10) * 1024;
}

Model describe(const host::Compiler& compiler) {
  Model model;
  model.name = fmt::format("host:{} {} cores {}", system_names().machine, core_count(),
                           compiler.found() ? compiler.version() : "without a compiler");
  model.multiprocessors = core_count();
  model.l2_bytes = std::max(0L, ::sysconf(_SC_LEVEL2_CACHE_SIZE));
  model.shared_bytes_per_block = shared_bytes_per_block;
  model.shared_bytes_per_multiprocessor = 228 * 1024;
  model.registers_per_multiprocessor = 65536;
  model.threads_per_multiprocessor = 2048;
  model.memory_bytes = static_cast<std::int64_t>(memory_in_bytes("MemTotal"));
  return model;
}

/// A copy of a kernel's parameter, aligned for whatever it holds.
class ArgumentCopy {
 public:
  ArgumentCopy(const void* arguments, std::size_t bytes)
      : data_(::operator new(std::max<std::size_t>(bytes, 1), alignment)) {
    if (bytes > 0) std::memcpy(data_, arguments, bytes);
  }
  ArgumentCopy(const ArgumentCopy&) = delete;
  ArgumentCopy& operator=(const ArgumentCopy&) = delete;
  ~ArgumentCopy() { ::operator delete(data_, alignment); }

  [[nodiscard]] const void* data() const noexcept { return data_; }

 private:
  static constexpr std::align_val_t alignment{128};
  void* data_;
};

class HostDevice : public Device {
 public:
  HostDevice() : model_(describe(compiler_)), scheduler_(seed_from_environment(), core_count()) {}

  const Model& model() const override { return model_; }
  std::string name() const override { return "host"; }

  std::string compiler() const override {
    return fmt::format("{} {} host-abi {}", compiler_.version(), system_names().machine, host_abi::version);
  }

  Environment environment() const override {
    const utsname names = system_names();
    return {{"host", names.nodename},
            {"kernel", names.release},
            {"compiler", compiler_.found() ? compiler_.version() : "none"},
            {"cpu", value_in("/proc/cpuinfo", "model name")},
            {"seed", std::to_string(scheduler_.seed())}};
  }

  Binary compile(const CompileRequest& request) override { return compiler_.compile(request); }
  int parallel_compiles() const override { return core_count(); }
  std::unique_ptr<Module> load(std::span<const std::byte> image) override {
    return std::make_unique<host::SharedObject>(image);
  }

  void launch(std::span<const KernelLaunch> kernels, const void* arguments, std::size_t argument_bytes,
              Stream) override {
    const DefaultFloatingEnvironment environment;  // threads that the scheduler starts inherit it
    for (const auto& [function, launch] : kernels) launch_one(function, launch, arguments, argument_bytes);
  }

  bool fits(Function function, const Launch& launch) const override {
    const auto limit = static_cast<std::uint32_t>(std::min(1024, kernel_of(function).max_threads));
    return launch.blocks > 0 && launch.threads > 0 && launch.threads <= limit &&
           launch.threads % host_abi::lanes == 0 && launch.cluster > 0 && launch.cluster <= largest_cluster &&
           launch.blocks % launch.cluster == 0 && launch.shared_bytes <= shared_bytes_per_block;
  }

  void* allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  void release(void* data) noexcept override { memory_.release(data); }
  std::size_t free_bytes() const override { return memory_in_bytes("MemAvailable"); }

  void upload(void* device, const void* host, std::size_t bytes) override {
    if (!move_words(device, host, bytes)) move(device, host, bytes);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    if (!move_words(host, device, bytes)) move(host, device, bytes);
  }
  void fill(void* device, unsigned char value, std::size_t bytes, Stream) override {
    if (bytes > 0) std::memset(device, value, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream) override { move(to, from, bytes); }
  void download(void* host, const void* device, std::size_t bytes, Stream) override {
    move(host, device, bytes);
  }

  // Kernels of this device run in the host's memory, whichever library allocated it.
  TensorMap tensor_map(const BoxedMatrix&) const override { return {}; }

  PointerKind pointer_kind(const void*) const override { return PointerKind::device; }
  bool capturing(Stream) const override { return false; }
  void synchronize(Stream) override {}
  Stream trial_stream() override { return nullptr; }

  std::vector<float> time(int samples, const std::function<void()>& before,
                          const std::function<void()>& timed) override {
    using Clock = std::chrono::steady_clock;
    std::vector<float> microseconds;
    for (int i = 0; i < samples; ++i) {
      before();
      const Clock::time_point start = Clock::now();
      timed();
      microseconds.push_back(std::chrono::duration<float, std::micro>(Clock::now() - start).count());
    }
    return microseconds;
  }

  MatmulLibrary& matmuls() override { return matmuls_; }

 private:
  void launch_one(Function function, const Launch& launch, const void* arguments,
                  std::size_t argument_bytes) {
    const host::Kernel& kernel = kernel_of(function);
    const std::string call = fmt::format("launch of {}", kernel.name);
    if (launch.cluster > 0 && launch.blocks % launch.cluster != 0)
      throw DeviceError(call, 0,
                        fmt::format("{} blocks are not a multiple of the {} blocks of a cluster",
                                    launch.blocks, launch.cluster));
    if (!fits(function, launch))
      throw DeviceError(
          call, 0,
          fmt::format("cannot run {} blocks of {} threads in clusters of {} with {} bytes of "
                      "shared memory (the kernel takes blocks of up to {} threads, the device clusters of "
                      "up to {} blocks)",
                      launch.blocks, launch.threads, launch.cluster, launch.shared_bytes, kernel.max_threads,
                      largest_cluster));
    const ArgumentCopy copy(arguments, argument_bytes);
    scheduler_.run(kernel, launch, copy.data());
    if (const auto bytes = memory_.find_overrun())
      throw DeviceError(call, 0, fmt::format("wrote outside of an allocation of {} bytes", *bytes));
  }

  static const host::Kernel& kernel_of(Function function) {
    return *static_cast<const host::Kernel*>(function.handle);
  }
  static void move(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  /// A few words, each as a whole: as on a GPU, another rank may write one in the meantime, to say that it gives up.
  /// \returns whether they are no more than that
  static bool move_words(void* to, const void* from, std::size_t bytes) {
    using Word [[gnu::may_alias]] = std::uint32_t;
    constexpr std::size_t most_bytes = 64;
    const auto addresses = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
    if (bytes > most_bytes || (addresses | bytes) % sizeof(Word) != 0) return false;
    for (std::size_t i = 0; i < bytes / sizeof(Word); ++i)
      __atomic_store_n(static_cast<Word*>(to) + i,
                       __atomic_load_n(static_cast<const Word*>(from) + i, __ATOMIC_RELAXED),
                       __ATOMIC_RELAXED);
    return true;
  }

  host::Compiler compiler_;
  Model model_;
  host::Memory memory_;
  host::MatmulLoops matmuls_;
  host::Scheduler scheduler_;
};

}  // namespace

std::unique_ptr<Device> open_host_device() { return std::make_unique<HostDevice>(); }

}  // namespace ce::runtime
