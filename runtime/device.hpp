#pragma once
/// \file
/// A device compiles, loads, launches and times kernels. It receives texts and bytes, and knows no operation.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ce/dtype.hpp"
#include "runtime/matmul.hpp"
#include "templates/device/tensor_map.cuh"

namespace ce::runtime {

/// The properties that distinguish one model of device from another. A fleet of equal GPUs shares one answer, so it has
/// no UUID, driver version or clock: those belong to the environment.
struct Model {
  std::string name;    ///< "NVIDIA H200"; the host device's begins with "host:"
  int capability = 0;  ///< 10 x major + minor of the compute capability; 0 for the host
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  int shared_bytes_per_block = 0;  ///< with the opt-in
  int shared_bytes_per_multiprocessor = 0;
  int registers_per_multiprocessor = 0;
  int threads_per_multiprocessor = 0;
  std::string mig_slice;          ///< empty unless the device is a MIG slice
  std::int64_t memory_bytes = 0;  ///< total memory; not part of the key

  [[nodiscard]] bool is_host() const noexcept { return capability == 0; }
  /// The canonical text of all members above that determine which kernel is fastest.
  [[nodiscard]] std::string key() const;
};

/// Properties that may have influenced a measurement, as name and value: uuid, driver, clocks, temperature, ...
using Environment = std::map<std::string, std::string>;

struct CompileRequest {
  std::string name;  ///< for messages and file names
  std::string text;
  std::map<std::string, std::string> headers;  ///< files that the text includes, by name
  std::vector<std::string> options;            ///< in addition to those that the device always passes
  /// The text uses features of one compute capability only: CUDA's target is sm_90a, for example, not sm_90.
  bool architecture_specific = false;
};

/// A compiled image: a cubin (or PTX) on CUDA, a shared object on the host.
struct Binary {
  std::vector<std::byte> image;
  std::string log;  ///< the compiler's warnings
};

/// The geometry of one launch. All grids and blocks are one-dimensional.
struct Launch {
  std::uint32_t blocks = 1;
  std::uint32_t threads = 1;
  std::uint32_t cluster = 1;  ///< blocks per cluster; 1 launches without clusters
  std::uint32_t shared_bytes = 0;
  /// The kernel itself waits (griddepcontrol.wait) for the kernel before it on the stream, and may start before that
  /// one has ended. A device without this feature starts it afterwards.
  bool overlaps = false;

  friend bool operator==(const Launch&, const Launch&) = default;
};

/// An entry point of a loaded Module; valid as long as the Module lives.
struct Function {
  const void* handle = nullptr;
};

/// An entry point and how it is launched.
struct KernelLaunch {
  Function function;
  Launch launch;
};

/// Resources of a compiled entry point.
struct Resources {
  int registers = 0;     ///< per thread; 0 if the device does not report them
  int local_bytes = 0;   ///< per thread: spills and arrays indexed at run time
  int shared_bytes = 0;  ///< static
};

/// A loaded Binary.
class Module {
 public:
  virtual ~Module() = default;
  /// \throws DeviceError if the module has no such entry point
  [[nodiscard]] virtual Function function(std::string_view entry) const = 0;
  [[nodiscard]] virtual Resources resources(Function function) const = 0;
};

enum class PointerKind { device, host, managed, other_device };

/// The state in which a Session finds its thread.
enum class Entry : std::uint8_t {
  inside,   ///< in a Session of the device already, or there is nothing to enter
  current,  ///< outside of a Session, but with the device's context current
  pushed,   ///< with another context current, or none
};

class Device;

/// The caller's allocator, used in place of the device's. Both functions may be called from any thread.
struct Allocator {
  /// Returns `bytes`, 1 or more, for work on `stream`, aligned to 256 bytes; null if memory is short.
  void* (*allocate)(void* state, std::size_t bytes, Stream stream) = nullptr;
  /// Frees memory. All work with it has ended.
  void (*release)(void* state, void* memory, Stream stream) = nullptr;
  void* state = nullptr;
};

/// Device memory, freed with its owner.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, std::size_t bytes);
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer();

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::byte* bytes() const noexcept { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A matrix of 16-bit elements that kernels load in boxes.
struct BoxedMatrix {
  const void* data = nullptr;  ///< aligned to 16 bytes, as is each row
  DType dtype = DType::bf16;   ///< f16 or bf16
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 0;        ///< elements
  int box_rows = 0, box_columns = 0;  ///< 256 rows at most; columns of 128 bytes
};

/// Identifies memory of a device to other processes.
using MemoryHandle = std::array<std::byte, 64>;

/// On CUDA the time of a short kernel depends on its launch number on the stream modulo this number: docs/measuring.md.
inline constexpr int launch_phases = 4;

/// A processor that runs kernels. Every method may be called from any thread, and leaves the thread's current CUDA
/// context and device as it found them.
class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual const Model& model() const = 0;
  /// The name in options and messages: "cuda:0", "host".
  [[nodiscard]] virtual std::string name() const = 0;
  /// The compiler with its version and target, e.g. "nvrtc 13.0 sm_90": part of every compile key.
  /// \throws Unsupported if there is no compiler; the message says how to get one
  [[nodiscard]] virtual std::string compiler() const = 0;
  /// The current state, read anew at each call (clocks and temperature change).
  [[nodiscard]] virtual Environment environment() const = 0;

  /// \throws CompileError, Unsupported (no compiler); Error(compile) if the compiler itself failed
  [[nodiscard]] virtual Binary compile(const CompileRequest& request) = 0;
  /// Number of compile() calls that usefully run at the same time.
  [[nodiscard]] virtual int parallel_compiles() const = 0;
  [[nodiscard]] virtual std::unique_ptr<Module> load(std::span<const std::byte> image) = 0;

  /// Launches the kernels one after the other, asynchronously on CUDA. `arguments` is the one parameter of each kernel,
  /// and is copied before the call returns.
  /// \throws DeviceError; on the host also for a barrier that not all threads reach, naming both source locations
  virtual void launch(std::span<const KernelLaunch> kernels, const void* arguments,
                      std::size_t argument_bytes, Stream stream) = 0;
  /// Launches a single kernel.
  void launch(Function function, const Launch& launch, const void* arguments, std::size_t argument_bytes,
              Stream stream) {
    const KernelLaunch kernel{function, launch};
    this->launch(std::span(&kernel, 1), arguments, argument_bytes, stream);
  }
  /// Whether the geometry can run at all: threads, registers and shared memory of the loaded function.
  [[nodiscard]] virtual bool fits(Function function, const Launch& launch) const = 0;
  /// Number of blocks of such launches that run at the same time, a multiple of the cluster; 0 if none can.
  [[nodiscard]] virtual int resident_blocks(Function function, const Launch& launch) const;

  /// Allocates memory for a Buffer, unless an Allocator was given.
  /// \throws DeviceError when memory is short
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data) noexcept = 0;
  /// Buffers that are made from now on use this allocator, which must outlive them.
  void use(const Allocator& allocator) { allocator_ = allocator; }
  [[nodiscard]] const Allocator& allocator() const noexcept { return allocator_; }
  [[nodiscard]] virtual std::size_t free_bytes() const = 0;
  /// Blocking copies between host and device memory.
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  /// Fills in stream order on CUDA.
  virtual void fill(void* device, unsigned char value, std::size_t bytes, Stream stream) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Makes L2 treat its lines of this memory like all others from now on, even if kernels asked to keep them
  /// (`evict_last`). In stream order on CUDA; does nothing if L2 has no such policy.
  virtual void reset_eviction_priority(const void* /*data*/, std::size_t /*bytes*/, Stream /*stream*/) {}
  /// Copies in stream order, into ordinary host memory that is valid after synchronize(stream).
  virtual void download(void* host, const void* device, std::size_t bytes, Stream stream) = 0;

  /// A tensor map for bulk tensor copies, which swizzle each 128 bytes as the tensor cores read them, and fill in zeros
  /// outside the matrix. On the host, where kernels read the matrix itself, the map is unused.
  /// \throws Unsupported if the device has no such copies
  [[nodiscard]] virtual TensorMap tensor_map(const BoxedMatrix& matrix) const;

  /// The handle of memory from allocate(), with which another process of this machine can open it.
  /// \throws Unsupported if processes cannot share memory
  [[nodiscard]] virtual MemoryHandle share(void* data);
  /// Opens memory that another process share()d, for kernels of this device, until close_shared().
  /// \throws Unsupported, DeviceError if that is not possible
  [[nodiscard]] virtual void* open_shared(const MemoryHandle& handle);
  virtual void close_shared(void*) noexcept {}
  /// Lets kernels of this device access memory that another device of this process allocate()d.
  /// \throws Unsupported, DeviceError if that is not possible
  virtual void reach(void*) {}

  [[nodiscard]] virtual PointerKind pointer_kind(const void* pointer) const = 0;
  /// True while work on the stream is being recorded into a graph.
  [[nodiscard]] virtual bool capturing(Stream stream) const = 0;
  /// \throws DeviceError also for an earlier asynchronous failure
  virtual void synchronize(Stream stream) = 0;
  /// Whether all work on the stream is done; does not wait if the device can tell without. \throws DeviceError as above
  [[nodiscard]] virtual bool is_idle(Stream stream) {
    synchronize(stream);
    return true;
  }

  /// A stream of the device's own for trial runs, never the caller's.
  [[nodiscard]] virtual Stream trial_stream() = 0;
  /// For each sample, calls before(), then times timed(), in microseconds of the device (events on CUDA). Both enqueue
  /// on trial_stream(). A sample starts when the one before has ended. On CUDA, samples cycle through the phases of
  /// that stream's launches (see `launch_phases`).
  [[nodiscard]] virtual std::vector<float> time(int samples, const std::function<void()>& before,
                                                const std::function<void()>& timed) = 0;

  /// The library of matrix products on this device; lives as long as the device.
  /// \throws Unsupported if there is none; the message says how to get one
  [[nodiscard]] virtual MatmulLibrary& matmuls() = 0;

  /// Entered and left by a Session.
  [[nodiscard]] virtual Entry enter() { return Entry::inside; }
  [[nodiscard]] virtual std::optional<Entry> enter_where_current() { return Entry::inside; }
  virtual void leave(Entry) noexcept {}

 private:
  Allocator allocator_;
};

/// Groups several calls of a device on one thread. Each call alone would look up and restore the thread's current CUDA
/// context; a Session does so once.
class Session {
 public:
  explicit Session(Device& device) : device_(device), entry_(device.enter()) {}
  struct WhereCurrent {};
  /// Enters only if the thread's current CUDA context is the device's already; on the host it always is.
  Session(Device& device, WhereCurrent) : device_(device), entry_(device.enter_where_current()) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (entry_) device_.leave(*entry_);
  }

  explicit operator bool() const noexcept { return entry_.has_value(); }

 private:
  Device& device_;
  std::optional<Entry> entry_;
};

}  // namespace ce::runtime
