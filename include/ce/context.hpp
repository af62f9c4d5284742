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

/// What run() and prepare() take.
template <class T>
concept AnyOperation = std::same_as<T, Softmax> || std::same_as<T, LogSoftmax> ||
    std::same_as<T, SoftmaxBackward> || std::same_as<T, LogSoftmaxBackward> ||
    std::same_as<T, CrossEntropy> || std::same_as<T, CrossEntropyBackward> ||
    std::same_as<T, CrossEntropyShard> || std::same_as<T, CrossEntropyMerge> ||
    std::same_as<T, CrossEntropyShardBackward> || std::same_as<T, CrossEntropyExchange>;

/// What to do for a problem that the database has no winner for. A fallback is the config that near known
/// problems speak for, else a safe default.
enum class Policy : std::uint8_t {
  tune,        ///< tune it now, once; while another thread or process does, wait for it, at most three
               ///< times ContextOptions::tuning_seconds, and go on with a fallback for the time being
  lookup,      ///< never tune: a fallback
  frozen,      ///< throw NotTuned
  background,  ///< a fallback at once; a thread of the Context tunes, and a later call takes the winner
};

/// "tune", "lookup", "frozen", "background".
[[nodiscard]] CE_API std::string_view name(Policy policy) noexcept;

/// How a config came to be chosen.
enum class Origin : std::uint8_t {
  tuned,     ///< measured by this process
  database,  ///< measured before
  nearest,   ///< the most promising, by what was measured of near problems
  fallback,  ///< a safe default: nothing was known and nothing could be tried
  told,      ///< by the rank that decides for all that share the classes, or by use()
};

[[nodiscard]] CE_API std::string_view name(Origin origin) noexcept;

/// Which kernel runs for a problem, and why.
struct Choice {
  std::string config;  ///< text form, as in `ce-tune db show`
  Origin origin = Origin::fallback;
  std::string reason;
  std::string key;  ///< what `ce-tune db show` takes
  /// A later call may run another config: the stream was being captured, another thread or process is tuning
  /// the problem, or a thread of the Context will. `reason` says which. A Plan keeps the config that it has.
  bool provisional = false;
  double row_us =
      0;  ///< microseconds that a row took when it was measured; 0: this process knows of no measurement

  friend bool operator==(const Choice&, const Choice&) = default;
};

/// Where the device memory of a Context comes from: workspaces, and what tuning takes for a while. Both functions are
/// called from any thread, and may not call the Context.
struct Allocator {
  /// \returns `bytes`, 1 or more, aligned to 256 bytes, that work on `stream` may use at once; null where memory is short
  void* (*allocate)(void* state, std::size_t bytes, Stream stream) = nullptr;
  /// Takes back what allocate() returned. All work with it has ended.
  void (*release)(void* state, void* memory, Stream stream) = nullptr;
  void* state = nullptr;
};

struct ContextOptions {
  /// "cuda", "cuda:1", "host"; empty: the environment variable CE_DEVICE, else the thread's current CUDA
  /// device, else GPU 0, else the host, of which the log warns once: it is there to find wrong kernels, and slow.
  std::string device = {};
  /// The tuning database; empty: the environment variable CE_DB, else $XDG_DATA_HOME/ce/ce.db, else
  /// ~/.local/share/ce/ce.db.
  /// A std::filesystem::path becomes one by itself.
  std::string database = {};
  /// Unset: the environment variable CE_POLICY, else Policy::tune.
  std::optional<Policy> policy = {};
  /// Seconds that tuning a problem may take; 0: no bound. What has begun by then is finished; tuning takes up to twice as
  /// long where few configs were compiled by then. Who waits for another thread or process that tunes waits three times
  /// as long at most, and so has its winner as a rule. Unset: 2 on a GPU; no bound on the host device.
  std::optional<double> tuning_seconds = {};
  /// Device memory that a problem's tensors may take for a while when it is tuned: as many rows are timed as fit, one at
  /// least. 0: a quarter of what is free, 2 GiB at most; 256 MiB on the host device. What verifies kernels, and twice
  /// the size of L2, come on top.
  std::int64_t scratch_bytes = 0;
  /// Device memory set aside at once for the workspaces of calls that are captured into graphs, where nothing
  /// can be allocated. A captured mean or sum takes 4 bytes a row, with a z-loss 8, the variant `split` 320 KiB,
  /// `pipeline`, `pipeline_decoupled`, `persistent` and `persistent_reduce` 256 bytes, and its output keeps them for calls
  /// of the same thread on the same stream. 1 MiB more is set aside for calls that are not captured.
  std::int64_t capture_bytes = std::int64_t{8} << 20;
  /// Products of linear layers may also add up parts of their sums in the order in which these end: other bits each time,
  /// where that is faster. The environment variable CE_NONDETERMINISTIC_PRODUCTS=1 allows it, too.
  bool nondeterministic_products = false;
  /// Unset: the device's own memory. It must outlive the Context.
  Allocator allocator = {};
};

class Context;

/// Memory of a Context's device, for programs that bring no allocator of their own. The Context must outlive
/// it. Threads may share one as they may share plain memory: copies of it by several at once are for the caller to order
/// when one of them is an upload. One that was moved from may only be assigned to or destroyed.
class CE_API Memory {
 public:
  Memory(Memory&&) noexcept;
  Memory& operator=(Memory&&) noexcept;
  ~Memory();

  [[nodiscard]] void* data() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Blocking copies of all its bytes from and to host memory. They wait for no other work, of no stream: call check(), or
  /// wait for the stream, before what a call has written is downloaded, and what it reads is uploaded over.
  /// \throws DeviceError, InvalidArgument for null
  void upload(const void* from);
  void download(void* to) const;

 private:
  friend class Context;
  struct CE_HIDDEN Impl;
  explicit Memory(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A problem bound to its kernel and its tensors: nothing is left to decide, also where its choice is provisional.
/// Prepare another one to get what was tuned since. The tensors, and the Context that prepared it, must outlive it.
/// Threads may share one, and run it at once on streams that they order: its tensors are the same for all of them. Copies
/// share all they have. One that was moved from may only be assigned to or destroyed.
class CE_API Plan {
 public:
  /// Launches on the stream. Like run(), but without looking anything up.
  void run(Stream stream = nullptr) const;
  [[nodiscard]] const Choice& choice() const noexcept;

 private:
  friend class Context;
  struct CE_HIDDEN Impl;
  explicit Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  CE_HIDDEN void launch(Stream stream) const;
  std::shared_ptr<const Impl> impl_;
};

/// default_context().run(), without the search for that Context where the thread used it last.
template <AnyOperation Operation>
CE_API const Choice& run(const Operation& operation, const typename Operation::Tensors& tensors,
                         Stream stream = nullptr);

/// The same of LinearCrossEntropy.
CE_API const Choice& run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                         Stream stream = nullptr);
/// The same where ranks share the classes.
CE_API void run(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
                Stream stream = nullptr);
CE_API void run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                const Shard& shard, Stream stream = nullptr);

/// A device, a database and the kernels chosen so far. Thread-safe. Leaves the thread's current CUDA context,
/// and its floating-point environment, as they were. A child of fork() makes its own; the end of its parent's does nothing.
class CE_API Context {
 public:
  /// \throws Unsupported where the device does not exist or is too old, InvalidArgument for an option or an
  /// environment variable that means nothing
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
  /// Calls that write the same memory must not run at the same time: on several streams, the caller orders
  /// them, replays of graphs that they were captured into included.
  ///
  /// \returns which kernel ran and why; valid as long as the Context
  /// \throws InvalidArgument naming the option or tensor and what was expected of it, before anything is
  /// enqueued; NotTuned, the same; Unsupported; CompileError, or Error(compile) where the compiler did not get to a
  /// kernel; Error(verification) where none is right; DeviceError
  template <AnyOperation Operation>
  const Choice& run(const Operation& operation, const typename Operation::Tensors& tensors,
                    Stream stream = nullptr);

  /// Cross entropy where ranks share the classes: `logits` and `grad` are this rank's shard, `weight` has all classes, and
  /// all else is as without ranks and the same on every rank. All ranks make the same call. Shard::plan says how they learn
  /// of each other: 12 to 40 bytes a row and rank, and no waiting for the GPU, but where a rank makes a call with
  /// a communicator, columns, options and power-of-two range of rows for the first time: then the ranks compare what they were
  /// asked for, and rank 0 chooses the kernels and the plan for all.
  /// \throws InvalidArgument as above, and on every rank where two ranks' calls do not fit each other; Unsupported, on
  /// every rank, where the plan is `exchange` and a rank cannot
  void run(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
           Stream stream = nullptr);

  /// Does all of run() but the launch. The Plan stays with the kernel that this call finds: with a fallback where
  /// the stream is being captured, another thread or process is tuning the problem, or the policy is `background`.
  template <AnyOperation Operation>
  [[nodiscard]] Plan prepare(const Operation& operation, const typename Operation::Tensors& tensors,
                             Stream stream = nullptr);

  /// Problems of a key run a config from here on, where this device can: what another rank's prepare() chose, for ranks
  /// with collectives of their own. Calls that a thread has made before keep their kernel.
  /// \param key, config  Choice::key and Choice::config
  void use(std::string_view key, std::string_view config);

  /// Enqueues the products and the kernels of every chunk on the stream. The first call of a shape tunes the products, too: it
  /// waits for the stream, and may write its outputs more than once. Calls on several streams need memory each; where
  /// Tensors::workspace is not given, threads that call on one stream take turns.
  /// \returns which kernel of cross entropy ran, and why
  /// \throws as for other operations; Unsupported also where there is no cuBLASLt, or where the stream is captured into a
  /// graph and the call's scratch memory is still to be allocated
  const Choice& run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
                    Stream stream = nullptr);

  /// The loss of a linear layer where ranks share the classes: `weight`, `bias` and their gradients are those of this
  /// rank's classes, one at least, `class_weight` has all classes, and all else is the same on every rank. `hidden_grad`
  /// becomes this rank's part: the sum over the ranks is the caller's, such as a reduce-scatter. Every chunk is a call with a
  /// Shard. Chunks are the same on every rank: of `chunk_tokens`, else of as many tokens as `memory_budget` (0: 512 MiB)
  /// holds logits of classes / ranks; but one chunk where the weight's gradient, which more chunks sum in f32 unless
  /// `accumulation` says otherwise, makes that no more memory.
  /// \throws as above; InvalidArgument on every rank where tokens, hidden, gradients or chunks differ the first time
  void run(const LinearCrossEntropy& operation, const LinearCrossEntropy::Tensors& tensors,
           const Shard& shard, Stream stream = nullptr);

  /// How run() would do it: what memory it takes, for callers that bring a workspace. Enqueues nothing. Of the tensors in
  /// device memory their addresses are only checked.
  [[nodiscard]] LinearSchedule schedule(const LinearCrossEntropy& operation,
                                        const LinearCrossEntropy::Tensors& tensors);
  [[nodiscard]] LinearSchedule schedule(const LinearCrossEntropy& operation,
                                        const LinearCrossEntropy::Tensors& tensors, const Shard& shard);

  /// Waits for the stream and looks whether a call on it has met a target out of range since the last check. Calls on
  /// other streams are not looked at, so threads with a stream each hear of their own calls alone; on the host device,
  /// where calls run on the thread that makes them, each thread counts as a stream of its own. What a replay of a graph
  /// meets counts for the stream that the call was captured on.
  /// \throws TargetOutOfRange with the operation, the number of such rows, the first and its target; each row is told
  /// once. DeviceError where a rank did not come in time (CrossEntropyExchange), whatever the stream
  void check(Stream stream);
  /// The same of the calls on every stream, replays of graphs on any stream included, that are done: waits for the
  /// default stream, and so for those that wait for it.
  void check();

  /// The same as check(stream), after calls whose ranks gather through the communicator: it waits no longer than that says,
  /// and asks it for failures meanwhile.
  /// \throws DeviceError also where a rank does not come; then work of the communicator may still be on the stream
  void check(const Communicator& communicator, Stream stream);

  /// Ends tuning in the background for good, and waits for the config that is being tried. Problems without a
  /// winner stay with what they have; their choices are provisional no longer. The end of a Context, and of the
  /// program, does the same.
  void stop_background();

  /// Multiplies a gradient in place by the gradient of the loss, where that becomes known only after CrossEntropy wrote
  /// both: enqueues grad *= upstream. Where the factor is 1, nearly always, nothing but it is read, and the call takes the
  /// GPU a few microseconds. The product is made in f32 and rounded once. It needs no tuning: its first call on a pair of
  /// dtypes compiles a kernel, which the database keeps; a gradient with gaps between its elements has another one.
  /// \param grad      f32, f16 or bf16 of any rows and columns
  /// \param upstream  [1] of f32 or the dtype of grad, in device memory; not in that of grad
  /// \throws InvalidArgument, CompileError, Unsupported, DeviceError
  void scale_gradient(const Tensor& grad, const ConstTensor& upstream, Stream stream = nullptr);

  /// Whether the device has a kernel for such a call, for ranks to agree on before one of them waits. `peers` are not
  /// looked at, and a call that means nothing is not possible.
  [[nodiscard]] bool is_possible(const CrossEntropyExchange& operation,
                                 const CrossEntropyExchange::Tensors& tensors) const;
  /// What CrossEntropyExchange needs. Waits for what it does itself.
  /// \throws InvalidArgument, DeviceError when memory is short, Unsupported where processes cannot share memory
  [[nodiscard]] PeerMemory peer_memory(const PeerMemory::Options& options);

  /// \throws DeviceError when memory is short
  [[nodiscard]] Memory allocate(std::size_t bytes);
  /// Waits for the stream. \throws DeviceError
  void synchronize(Stream stream = nullptr);

  /// "cuda:0", "host".
  [[nodiscard]] std::string device_name() const;
  /// How many kernels this Context had to compile; 0 with a warm database.
  [[nodiscard]] int compiled() const noexcept;

 private:
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

/// The process-wide Context of the thread's current device (see ContextOptions::device), made on first use with the
/// options that configure_default_context() was given. CE_DEVICE is read once, by the first call.
[[nodiscard]] CE_API Context& default_context();

/// Options of the default Contexts, one for each device that is used. A `device` is that of all threads, whatever is
/// current, as CE_DEVICE is. Only before the first call that uses a default Context; the latest options count. A child
/// of fork() makes its Contexts with those of its parent, and may be given others before its own first call.
/// \throws InvalidArgument for an option that means nothing, Unsupported where a call has asked for a default
/// Context already
CE_API void configure_default_context(const ContextOptions& options);

}  // namespace ce
