#pragma once
/// \file
/// Explicit control over the device, the database and tuning.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ce/dtype.hpp"
#include "ce/export.hpp"
#include "ce/language.hpp"
#include "ce/linear.hpp"
#include "ce/operations.hpp"
#include "ce/ranks.hpp"

namespace ce {

/// Operations that run() and prepare() accept.
template <class T>
concept AnyOperation = std::same_as<T, Softmax> || std::same_as<T, LogSoftmax> ||
    std::same_as<T, SoftmaxBackward> || std::same_as<T, LogSoftmaxBackward> ||
    std::same_as<T, CrossEntropy> || std::same_as<T, CrossEntropyBackward> ||
    std::same_as<T, CrossEntropyShard> || std::same_as<T, CrossEntropyMerge> ||
    std::same_as<T, CrossEntropyShardBackward> || std::same_as<T, CrossEntropyExchange>;

/// What a call does if the database has no winner for its problem. A fallback is the config that is most promising by
/// the measurements of near problems, or a safe default.
enum class Policy : std::uint8_t {
  tune,        ///< tune it now, once; if another thread or process tunes it, wait for at most three
               ///< times ContextOptions::tuning_seconds, then use a fallback until the winner is there
  lookup,      ///< never tune; use a fallback
  frozen,      ///< throw NotTuned
  background,  ///< use a fallback at once; a thread of the Context tunes, and later calls use the winner
};

/// "tune", "lookup", "frozen", "background".
[[nodiscard]] CE_API std::string_view name(Policy policy) noexcept;

/// How a config came to be chosen.
enum class Origin : std::uint8_t {
  tuned,     ///< measured by this process
  database,  ///< measured before
  nearest,   ///< the most promising config, by measurements of near problems
  fallback,  ///< a safe default: there were no measurements, and tuning was not possible
  assigned,  ///< named by the rank that decides for all ranks, or by use()
};

[[nodiscard]] CE_API std::string_view name(Origin origin) noexcept;

/// Which kernel runs for a problem, and why.
struct Choice {
  std::string config;  ///< text form, as in `ce-tune db show`
  Origin origin = Origin::fallback;
  std::string reason;
  std::string key;  ///< an argument of `ce-tune db show`
  /// Whether a later call may run another config: because the stream was being captured, another thread or process
  /// tunes the problem, or a thread of the Context will. `reason` says which. A Plan keeps its config.
  bool provisional = false;
  double row_us = 0;  ///< microseconds a row when it was measured; 0: this process has no measurement

  friend bool operator==(const Choice&, const Choice&) = default;
};

/// Allocates the device memory of a Context: workspaces, and temporary memory of tuning. Any thread may call both
/// functions; they must not call the Context.
struct Allocator {
  /// \returns `bytes`, 1 or more, aligned to 256 bytes, that work on `stream` may use at once; null if memory is short
  void* (*allocate)(void* state, std::size_t bytes, Stream stream) = nullptr;
  /// Frees memory that allocate() returned. All work with it has ended.
  void (*release)(void* state, void* memory, Stream stream) = nullptr;
  void* state = nullptr;
};

struct ContextOptions {
  /// "cuda", "cuda:1", "host"; empty: the environment variable CE_DEVICE, else the thread's current CUDA device, else
  /// GPU 0, else the host, which the log warns about once: the host device finds wrong kernels, and is slow.
  std::string device = {};
  /// The tuning database; empty: the environment variable CE_DB, else $XDG_DATA_HOME/ce/ce.db, else
  /// ~/.local/share/ce/ce.db. A std::filesystem::path converts implicitly.
  std::string database = {};
  /// Unset: the environment variable CE_POLICY, else Policy::tune.
  std::optional<Policy> policy = {};
  /// Seconds that tuning a problem may take; 0: no bound. Work that has begun by then is finished; tuning takes up to
  /// twice as long if few configs were compiled by then. A call that waits for another tuning thread or process waits
  /// at most three times as long, and so usually gets its winner. Unset: 2 on a GPU; no bound on the host device.
  std::optional<double> tuning_seconds = {};
  /// Device memory that a problem's tensors may take during tuning: as many rows are timed as fit, at least one. 0: a
  /// quarter of the free memory, at most 2 GiB; 256 MiB on the host device. Tensors for verification, and twice the
  /// size of L2, come on top.
  std::int64_t scratch_bytes = 0;
  /// Device memory that is reserved at once for the workspaces of calls captured into graphs, since a capture cannot
  /// allocate. A captured mean or sum takes 4 bytes a row, with a z-loss 8, the variant `split` 320 KiB, and
  /// `pipeline`, `pipeline_decoupled`, `persistent` and `persistent_reduce` 256 bytes; its output keeps them for calls
  /// of the same thread on the same stream. 1 MiB more is reserved for calls that are not captured.
  std::int64_t capture_bytes = std::int64_t{8} << 20;
  /// Products of linear layers may also add up partial sums in the order in which these end, if that is faster; the
  /// result then differs in its last bits between calls. The environment variable CE_NONDETERMINISTIC_PRODUCTS=1 allows
  /// it, too.
  bool nondeterministic_products = false;
  /// Unset: the device's own memory. It must outlive the Context.
  Allocator allocator = {};
};

class Context;

/// Memory of a Context's device, for programs without an allocator of their own. The Context must outlive it. Threads
/// may share it like plain memory: the caller orders copies by several threads if one of them is an upload. A
/// moved-from object may only be assigned to or destroyed.
class CE_API Memory {
 public:
  Memory(Memory&&) noexcept;
  Memory& operator=(Memory&&) noexcept;
  ~Memory();

  [[nodiscard]] void* data() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Blocking copies of all its bytes from and to host memory. They wait for no stream: call check(), or wait for the
  /// stream, before downloading what a call writes, and before uploading over what it reads.
  /// \throws DeviceError, InvalidArgument for null
  void upload(const void* from);
  void download(void* to) const;

 private:
  friend class Context;
  struct CE_HIDDEN Impl;
  explicit Memory(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A problem bound to its kernel and its tensors: nothing is left to decide, even if its choice is provisional. Prepare
/// another one to use a winner that was tuned since. The tensors, and the Context that prepared it, must outlive it.
/// Several threads may run one Plan at once if they order their streams: all runs use the same tensors. Copies share
/// their state. A moved-from Plan may only be assigned to or destroyed.
class CE_API Plan {
 public:
  /// Launches on the stream, as run() does, but without any lookup.
  void run(Stream stream = nullptr) const;
  [[nodiscard]] const Choice& choice() const noexcept;

 private:
  friend class Context;
  struct CE_HIDDEN Impl;
  explicit Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  CE_HIDDEN void launch(Stream stream) const;
  std::shared_ptr<const Impl> impl_;
};

/// Calls default_context().run(), without looking up that Context if the thread used it last.
template <AnyOperation Operation>
CE_API const Choice& run(const Operation& operation, const typename Operation::Tensors& tensors,
                         Stream stream = nullptr);

/// The overload for LinearCrossEntropy.
CE_API const Choice& run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                         Stream stream = nullptr);
/// The overloads for ranks that share the classes.
CE_API void run(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
                Stream stream = nullptr);
CE_API void run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                const Shard& shard, Stream stream = nullptr);

/// A device, a database and the kernels chosen so far. Thread-safe. It leaves the thread's current CUDA context and
/// floating-point environment as they were. A child of fork() makes its own Context; destroying its parent's does
/// nothing.
class CE_API Context {
 public:
  /// \throws Unsupported if the device does not exist or is too old, InvalidArgument for an invalid option or
  /// environment variable
  explicit Context(const ContextOptions& options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Enqueues the operation on the stream; on the host device it runs before the call returns.
  ///
  /// The first call on a new shape tunes (see Policy) and takes seconds; later calls, and later processes
  /// with the same database, launch at once. While the stream is captured into a graph nothing is tuned,
  /// synchronised or allocated. Every problem of the same operation, dtypes, options, columns and
  /// power-of-two range of rows shares a kernel.
  ///
  /// Calls that write the same memory must not run at the same time: if they are on several streams, the caller orders
  /// them. This includes replays of graphs that they were captured into.
  ///
  /// \returns which kernel ran and why; valid as long as the Context
  /// \throws InvalidArgument naming the option or tensor and the expected value, before anything is enqueued; NotTuned,
  /// likewise; Unsupported; CompileError, or Error(compile) if the compiler itself failed; Error(verification) if no
  /// kernel gives right results; DeviceError
  template <AnyOperation Operation>
  const Choice& run(const Operation& operation, const typename Operation::Tensors& tensors,
                    Stream stream = nullptr);

  /// Cross entropy if ranks share the classes: `logits` and `grad` are this rank's shard, `weight` covers all classes,
  /// and everything else is as without ranks and equal on every rank. All ranks make the same call. Shard::plan says
  /// how they exchange statistics: 12 to 40 bytes a row and rank. The call does not wait for the GPU, except when a
  /// rank uses a communicator, columns, options and power-of-two range of rows for the first time: then the ranks
  /// compare their calls, and rank 0 chooses the kernels and the plan for all.
  /// \throws InvalidArgument as above, and on every rank if two ranks' calls do not match; Unsupported, on every rank,
  /// if the plan is `exchange` and one rank cannot
  void run(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
           Stream stream = nullptr);

  /// Does everything that run() does except the launch. The Plan keeps the kernel that this call finds: a fallback if
  /// the stream is being captured, another thread or process tunes the problem, or the policy is `background`.
  template <AnyOperation Operation>
  [[nodiscard]] Plan prepare(const Operation& operation, const typename Operation::Tensors& tensors,
                             Stream stream = nullptr);

  /// Makes problems of a key run a config from now on, if this device can. Ranks with their own collectives use it to
  /// run the config that another rank's prepare() chose. Calls that a thread has made before keep their kernel.
  /// \param key, config  Choice::key and Choice::config
  void use(std::string_view key, std::string_view config);

  /// Enqueues the products and the kernels of every chunk on the stream. The first call of a shape tunes the products,
  /// too: it waits for the stream, and may write its outputs more than once. Calls on several streams need separate
  /// memory; without Tensors::workspace, threads that call on one stream run one after the other.
  /// \returns which kernel of cross entropy ran, and why
  /// \throws as for other operations; Unsupported also if there is no cuBLASLt, or if the stream is being captured and
  /// the call's scratch memory is not allocated yet
  const Choice& run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                    Stream stream = nullptr);

  /// The loss of a linear layer if ranks share the classes: `weight`, `bias` and their gradients cover this rank's
  /// classes, at least one, `class_weight` covers all classes, and everything else is equal on every rank.
  /// `hidden_grad` becomes this rank's contribution: the caller sums it over the ranks, for example with a
  /// reduce-scatter. Every chunk is a call with a Shard. Chunks are equal on every rank: of `chunk_tokens`, else of as
  /// many tokens as `memory_budget` (0: 512 MiB) holds logits of classes / ranks. There is only one chunk if the logits
  /// of all tokens take no more memory than those of a smaller chunk and the f32 sum of the weight's gradient, which
  /// several chunks need unless `accumulation` says otherwise.
  /// \throws as above; InvalidArgument on every rank if tokens, hidden, gradients or chunks differ the first time
  void run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
           const Shard& shard, Stream stream = nullptr);

  /// Returns how run() would divide the call and what memory it takes, for callers that bring a workspace. Enqueues
  /// nothing. It checks shapes and addresses, but neither the options of the loss nor the dtypes of tensors of tokens, as
  /// run() does.
  [[nodiscard]] LinearSchedule schedule(const LinearCrossEntropy& operation,
                                        const LinearCrossEntropy::Tensors& tensors);
  [[nodiscard]] LinearSchedule schedule(const LinearCrossEntropy& operation,
                                        const LinearCrossEntropy::Tensors& tensors, const Shard& shard);

  /// Waits for the stream and checks whether a call on it has met a target out of range since the last check. It does
  /// not check other streams, so each thread with its own stream learns only of its own calls. On the host device,
  /// where calls run on the calling thread, each thread counts as a stream. A replayed graph counts for the stream that
  /// its calls were captured on.
  /// \throws TargetOutOfRange with the operation, the number of such rows, the first row and its target; each row is
  /// reported once. DeviceError if a rank did not come in time (CrossEntropyExchange), for any stream
  void check(Stream stream);
  /// Checks the finished calls on every stream, including replays of graphs: it waits for the default stream, and so
  /// for the streams that synchronise with it.
  void check();

  /// Like check(stream), after calls whose ranks gather through the communicator: it waits at most as long as the
  /// communicator's patience, and polls it for failures meanwhile.
  /// \throws DeviceError also if a rank does not come; work of the communicator may then still be on the stream
  void check(const Communicator& communicator, Stream stream);

  /// Ends tuning in the background for good, and waits for the config that is being tried. Problems without a winner
  /// keep their fallback; their choices are no longer provisional. The destructor, and the end of the program, do the
  /// same.
  void stop_background();

  /// Multiplies a gradient in place by the gradient of the loss, if that becomes known only after CrossEntropy wrote
  /// both: enqueues grad *= upstream. If the factor is 1, which is the usual case, the kernel reads nothing else and
  /// takes a few microseconds. The product is computed in f32 and rounded once. It needs no tuning: the first call with
  /// a pair of dtypes compiles a kernel, which the database keeps; a gradient with gaps between its elements needs
  /// another kernel.
  /// \param grad      f32, f16 or bf16 of any rows and columns
  /// \param upstream  [1] of f32 or the dtype of grad, in device memory; must not overlap grad
  /// \throws InvalidArgument, CompileError, Unsupported, DeviceError
  void scale_gradient(const Tensor& grad, const ConstTensor& upstream, Stream stream = nullptr);

  /// Whether the device has a kernel for such a call, so that ranks can agree before one of them waits. `peers` is not
  /// checked; the result is false for an invalid call.
  [[nodiscard]] bool is_possible(const CrossEntropyExchange& operation,
                                 const CrossEntropyExchange::Tensors& tensors) const;
  /// Makes the memory that CrossEntropyExchange needs. Waits for its own work on the device.
  /// \throws InvalidArgument, DeviceError when memory is short, Unsupported if processes cannot share memory
  [[nodiscard]] PeerMemory peer_memory(const PeerMemory::Options& options);

  /// \throws DeviceError when memory is short
  [[nodiscard]] Memory allocate(std::size_t bytes);
  /// Waits for the stream. \throws DeviceError
  void synchronize(Stream stream = nullptr);

  /// The name of the device: "cuda:0", "host".
  [[nodiscard]] std::string device_name() const;
  /// Number of kernels that this Context had to compile; 0 with a warm database.
  [[nodiscard]] int compiled() const noexcept;

 private:
  friend class LinearCall;
  friend class Plan;
  template <AnyOperation Operation>
  friend const Choice& run(const Operation& operation, const typename Operation::Tensors& tensors,
                           Stream stream);
  struct CE_HIDDEN Impl;

  template <AnyOperation Operation>
  [[gnu::noinline]] const Choice& run_unknown(const Operation& operation,
                                              const typename Operation::Tensors& tensors, Stream stream);

  std::unique_ptr<Impl> impl_;
};

/// The process-wide Context of the thread's current device (see ContextOptions::device), created at first use with the
/// options of configure_default_context(). The first call reads CE_DEVICE, once.
[[nodiscard]] CE_API Context& default_context();

/// Sets options of the default Contexts, of which each used device has one. A `device` applies to all threads, whatever
/// is current, as CE_DEVICE does. Only before the first call that uses a default Context; the latest options count. A
/// child of fork() creates its Contexts with its parent's options, and may set others before its own first call.
/// \throws InvalidArgument for an invalid option, Unsupported if a call has already used a default Context
CE_API void configure_default_context(const ContextOptions& options);

}  // namespace ce
