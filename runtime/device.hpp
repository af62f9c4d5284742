#pragma once
/// \file
/// A device compiles, loads, launches and times kernels. It is handed texts and bytes and knows no operation.

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

/// What separates one model of device from another. A fleet of equal GPUs shares one answer, so no
/// UUID, driver or clock is in here: those belong to the environment.
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
  /// The canonical text of all of the above that decides which kernel is fastest.
  [[nodiscard]] std::string key() const;
};

/// What may have influenced a measurement, as name and value: uuid, driver, clocks, temperature, ...
using Environment = std::map<std::string, std::string>;

struct CompileRequest {
  std::string name;  ///< for messages and file names
  std::string text;
  std::map<std::string, std::string> headers;  ///< what `#include "name"` in the text finds
  std::vector<std::string> options;            ///< beyond those the device always passes
  /// The text uses what GPUs of no other compute capability have: CUDA's target is sm_90a, say, not sm_90.
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
  /// The kernel waits by itself (griddepcontrol.wait) for the one before it on the stream, and may start
  /// before that one has ended. A device that cannot do that starts it afterwards.
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

/// What the compiler made of an entry point.
struct Resources {
  int registers = 0;     ///< per thread; 0 where the device cannot tell
  int local_bytes = 0;   ///< per thread: spills and arrays indexed at run time
  int shared_bytes = 0;  ///< static
};

/// A loaded Binary.
class Module {
 public:
  virtual ~Module() = default;
  /// \throws DeviceError where the module has no such entry point
  [[nodiscard]] virtual Function function(std::string_view entry) const = 0;
  [[nodiscard]] virtual Resources resources(Function function) const = 0;
};

enum class PointerKind { device, host, managed, other_device };

/// How a Session finds its thread.
enum class Entry : std::uint8_t {
  inside,   ///< in a Session of the device already, or there is nothing to enter
  current,  ///< outside, but with the device's context current
  pushed,   ///< with another context or none current
};

class Device;

/// Where a program's own memory comes from, in place of the device's. Both are called from any thread.
struct Allocator {
  /// `bytes`, 1 or more, for work on `stream`, aligned to 256 bytes; null where memory is short.
  void* (*allocate)(void* state, std::size_t bytes, Stream stream) = nullptr;
  /// All work with the memory has ended.
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

/// A matrix of 16-bit elements that kernels load box by box.
struct BoxedMatrix {
  const void* data = nullptr;  ///< aligned to 16 bytes, as is each row
  DType dtype = DType::bf16;   ///< f16 or bf16
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 0;        ///< elements
  int box_rows = 0, box_columns = 0;  ///< 256 rows at most; of 128 bytes
};

/// How other processes find memory of a device.
using MemoryHandle = std::array<std::byte, 64>;

/// Which of so many launches of its stream a short kernel is moves its time on CUDA: see docs/measuring.md.
inline constexpr int launch_places = 4;

/// A place where kernels run. Every method may be called from any thread, and leaves the thread's current
/// CUDA context and device as it found them.
class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual const Model& model() const = 0;
  /// The name a user gives it: "cuda:0", "host".
  [[nodiscard]] virtual std::string name() const = 0;
  /// The compiler with its version and target, e.g. "nvrtc 13.0 sm_90": part of every compile key.
  /// \throws Unsupported where there is no compiler; the message says how to get one
  [[nodiscard]] virtual std::string compiler() const = 0;
  /// Read afresh at each call (clocks and temperature change).
  [[nodiscard]] virtual Environment environment() const = 0;

  /// \throws CompileError, Unsupported (no compiler); Error(compile) where the compiler did not get to the source
  [[nodiscard]] virtual Binary compile(const CompileRequest& request) = 0;
  /// How many compile() calls run at the same time to good effect.
  [[nodiscard]] virtual int parallel_compiles() const = 0;
  [[nodiscard]] virtual std::unique_ptr<Module> load(std::span<const std::byte> image) = 0;

  /// One after the other, asynchronous on CUDA. `arguments` is the one parameter of each kernel, copied before the
  /// call returns.
  /// \throws DeviceError; on the host also for a barrier that not all threads reach, naming both places
  virtual void launch(std::span<const KernelLaunch> kernels, const void* arguments,
                      std::size_t argument_bytes, Stream stream) = 0;
  /// A single one.
  void launch(Function function, const Launch& launch, const void* arguments, std::size_t argument_bytes,
              Stream stream) {
    const KernelLaunch kernel{function, launch};
    this->launch(std::span(&kernel, 1), arguments, argument_bytes, stream);
  }
  /// Whether the geometry can run at all: threads, registers and shared memory of the loaded function.
  [[nodiscard]] virtual bool fits(Function function, const Launch& launch) const = 0;
  /// How many blocks of such launches run at the same time, a multiple of the cluster; 0 where none can.
  [[nodiscard]] virtual int resident_blocks(Function function, const Launch& launch) const;

  /// What a Buffer takes, unless an Allocator was given.
  /// \throws DeviceError when memory is short
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data) noexcept = 0;
  /// Buffers that are made from here on take their memory from it, which must outlive them.
  void use(const Allocator& allocator) { allocator_ = allocator; }
  [[nodiscard]] const Allocator& allocator() const noexcept { return allocator_; }
  [[nodiscard]] virtual std::size_t free_bytes() const = 0;
  /// Blocking copies between host and device memory.
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  /// Fills in stream order on CUDA.
  virtual void fill(void* device, unsigned char value, std::size_t bytes, Stream stream) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  /// L2 evicts what it holds of this memory like all else from here on, whatever kernels asked for (`evict_last`). In
  /// stream order on CUDA; nothing where L2 has no such policy.
  virtual void reset_eviction_priority(const void* /*data*/, std::size_t /*bytes*/, Stream /*stream*/) {}
  /// Copies in stream order, into ordinary host memory that is valid after synchronize(stream).
  virtual void download(void* host, const void* device, std::size_t bytes, Stream stream) = 0;

  /// For bulk tensor copies, which swizzle each 128 bytes as the tensor cores read them, and fill in zeros outside the
  /// matrix. On the host, where kernels read the matrix itself, it says nothing.
  /// \throws Unsupported where there are no such copies
  [[nodiscard]] virtual TensorMap tensor_map(const BoxedMatrix& matrix) const;

  /// The handle of memory from allocate(), by which another process of this machine opens it by.
  /// \throws Unsupported where processes cannot share memory
  [[nodiscard]] virtual MemoryHandle share(void* data);
  /// What share() made in another process, as kernels of this device reach it, until close_shared().
  /// \throws Unsupported, DeviceError where they cannot
  [[nodiscard]] virtual void* open_shared(const MemoryHandle& handle);
  virtual void close_shared(void*) noexcept {}
  /// Lets kernels of this device reach what allocate() of another device of this process returned.
  /// \throws Unsupported, DeviceError where they cannot
  virtual void reach(void*) {}

  [[nodiscard]] virtual PointerKind pointer_kind(const void* pointer) const = 0;
  /// True while work on the stream is being recorded into a graph.
  [[nodiscard]] virtual bool capturing(Stream stream) const = 0;
  /// \throws DeviceError also for an earlier asynchronous failure
  virtual void synchronize(Stream stream) = 0;
  /// Whether all work on the stream is done; waits for nothing, where the device can tell. \throws DeviceError as above
  [[nodiscard]] virtual bool is_idle(Stream stream) {
    synchronize(stream);
    return true;
  }

  /// A stream of the device's own for trial runs, never the caller's.
  [[nodiscard]] virtual Stream trial_stream() = 0;
  /// For each sample: before(), then the time from the start to the end of timed(), in microseconds of the
  /// device (events on CUDA). Both enqueue on trial_stream(). One sample has ended before the next one begins. On
  /// CUDA, samples begin with the first, second, ... of `launch_places` launches of that stream in turn.
  [[nodiscard]] virtual std::vector<float> time(int samples, const std::function<void()>& before,
                                                const std::function<void()>& timed) = 0;

  /// What makes products of matrices here; lives as long as the device.
  /// \throws Unsupported where there is none; the message says how to get one
  [[nodiscard]] virtual MatmulLibrary& matmuls() = 0;

  /// See Session.
  [[nodiscard]] virtual Entry enter() { return Entry::inside; }
  [[nodiscard]] virtual std::optional<Entry> enter_where_current() { return Entry::inside; }
  virtual void leave(Entry) noexcept {}

 private:
  Allocator allocator_;
};

/// Several calls of a device in a row on one thread: what each would look up and put back by itself, the
/// thread's current CUDA context, is looked up and put back once.
class Session {
 public:
  explicit Session(Device& device) : device_(device), entry_(device.enter()) {}
  struct WhereCurrent {};
  /// Only where the thread's current CUDA context is the device's already; on the host it always is.
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
