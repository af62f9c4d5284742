#ifndef CE_CE_H
#define CE_CE_H
/// \file
/// The C interface of ce: softmax and cross entropy kernels that tune themselves to the GPU and the shape.
///
/// \code
/// const ce_tensor x = ce_matrix(logits, CE_DTYPE_BF16, rows, columns);
/// const ce_tensor t = ce_vector(targets, CE_DTYPE_I64, rows), l = ce_vector(loss, CE_DTYPE_F32, 1);
/// ce_cross_entropy_tensors tensors = CE_CROSS_ENTROPY_TENSORS_INIT;
/// tensors.logits = &x;
/// tensors.target = &t;
/// tensors.loss = &l;
/// tensors.grad = &x;
/// if (ce_cross_entropy(NULL, NULL, &tensors, stream, NULL) != CE_STATUS_SUCCESS) puts(ce_last_error());
/// \endcode
///
/// **Errors.** A function that can fail returns a ce_status; ce_last_error() and ce_last_error_details() describe the
/// calling thread's latest failure. A call that returns CE_STATUS_INVALID_ARGUMENT enqueues and writes nothing, and a
/// handle that it was to make is NULL. No C++ exception leaves the library.
///
/// **Contexts.** A `context` of NULL is the default one of the thread's current CUDA device, which is made on
/// first use and lives as long as the process; ce_configure_default_context() gives it options.
/// **Threads.** Any thread may call any function at any time, and threads may share handles, but a handle may only be
/// destroyed when no other call uses it. Each call leaves the thread's current CUDA context and device as it found
/// them. After fork() a child makes its own handles; it must not use those of its parent.
///
/// **ABI.** A struct that begins with `struct_size` is initialised with the macro beside it. Otherwise the caller sets
/// `struct_size` to the struct's size, zeroes what this documentation does not name, and sets every other field.
/// Structs only grow at their end. So programs that were compiled with an older header keep working; a newer header's
/// struct must be zero in fields that this library does not know. ce_tensor never grows. Enumerations are int32_t. All
/// functions use the C calling convention, and all texts are UTF-8 and end with a null byte.

#include <stddef.h>
#include <stdint.h>

/// The version of this header; ce_version() returns that of the library.
#define CE_VERSION_MAJOR 0
#define CE_VERSION_MINOR 1
#define CE_VERSION_PATCH 0
#define CE_VERSION "0.1.0"

#if defined(CE_C_BUILD) && defined(__GNUC__)
#define CE_C_API __attribute__((visibility("default")))
#else
#define CE_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// "major.minor.patch" of the library that is loaded. Lives as long as the library.
CE_C_API const char* ce_version(void);

// ---- Errors -------------------------------------------------------------------------------------------

/// How a call ended.
typedef int32_t ce_status;
enum {
  CE_STATUS_SUCCESS = 0,
  CE_STATUS_INVALID_ARGUMENT = 1,  ///< an argument is wrong, or an environment variable has an invalid value
  CE_STATUS_UNSUPPORTED = 2,       ///< valid, but not on this device or not in this version
  CE_STATUS_DEVICE = 3,            ///< the CUDA driver or the host device reported a failure
  CE_STATUS_COMPILE = 4,           ///< a kernel failed to compile
  CE_STATUS_DATABASE = 5,          ///< the tuning database could not do what was explicitly asked of it
  CE_STATUS_NOT_FOUND = 6,         ///< a key, config or file that was asked for by name does not exist
  CE_STATUS_TARGET_OUT_OF_RANGE = 7,  ///< a cross entropy target is neither a class index nor ignore_index
  CE_STATUS_VERIFICATION = 8,         ///< no kernel computed the right answer
  CE_STATUS_INTERRUPTED = 9,          ///< the caller asked to stop
  CE_STATUS_OUT_OF_MEMORY = 10,       ///< memory of the device is short
  CE_STATUS_OUT_OF_HOST_MEMORY = 11,  ///< memory of the process is short
  CE_STATUS_NOT_TUNED = 12,           ///< CE_POLICY_FROZEN, and the database has no winner for the problem
  CE_STATUS_INTERNAL = 13             ///< a mistake in ce: please report its message
};

/// "invalid argument", "out of device memory", ...; "unknown status" for any other value. Valid as long as the library.
CE_C_API const char* ce_status_name(ce_status status);

/// The message of the calling thread's latest failed call; "" before the first. Successful calls leave it unchanged.
/// Valid until the thread's next failed call, and no longer than the thread lives.
CE_C_API const char* ce_last_error(void);

/// The fields of an error. A text that does not apply to the status is "", never NULL.
typedef struct ce_error_details {
  size_t struct_size;
  ce_status status;         ///< CE_STATUS_SUCCESS before the thread's first failure
  int32_t code;             ///< CE_STATUS_DEVICE, ..._OUT_OF_MEMORY: the CUresult of the failed call; else 0
  const char* message;      ///< as ce_last_error()
  const char* place;        ///< "file:line" in ce that reported the error; "" if not known
  const char* operation;    ///< "CrossEntropy" if a call was refused or met a target out of range
  const char* argument;     ///< CE_STATUS_INVALID_ARGUMENT: "input.rows"
  const char* value;        ///< CE_STATUS_INVALID_ARGUMENT: its value: "-1"
  const char* expected;     ///< CE_STATUS_INVALID_ARGUMENT: what it should be: "0 or more"
  const char* call;         ///< CE_STATUS_DEVICE, CE_STATUS_OUT_OF_MEMORY: the text of the failed call
  const char* log;          ///< CE_STATUS_COMPILE: the compiler's messages
  const char* source_path;  ///< CE_STATUS_COMPILE: the file with the kernel's source, which stays on disk
  const char* problems;     ///< CE_STATUS_NOT_TUNED: one line for each problem that the context has missed
} ce_error_details;
#define CE_ERROR_DETAILS_INIT                                                                             \
  {                                                                                                       \
    sizeof(ce_error_details), CE_STATUS_SUCCESS, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        NULL                                                                                              \
  }

/// Describes the calling thread's latest failure, in as many fields as `struct_size` covers. The texts are valid as
/// long as that of ce_last_error(). Does nothing for NULL.
CE_C_API void ce_last_error_details(ce_error_details* details);

// ---- Tensors ------------------------------------------------------------------------------------------

/// CUDA's CUstream and cudaStream_t; NULL is the legacy default stream. The host device ignores it.
typedef struct CUstream_st* ce_stream;

/// The type of an element.
typedef int32_t ce_dtype;
enum {
  CE_DTYPE_F32 = 0,
  CE_DTYPE_F16 = 1,
  CE_DTYPE_BF16 = 2,
  CE_DTYPE_I32 = 3,
  CE_DTYPE_I64 = 4,
  CE_DTYPE_U8 = 5
};

/// A `row_stride` that means "as long as a row": each row follows the one before without a gap.
#define CE_CONTIGUOUS INT64_MIN

/// A view of [rows, columns] elements in device memory (or host memory, on the host device). It owns nothing, and no
/// call keeps it: the struct may be gone when the call returns.
///
/// Row r starts r x row_stride elements after `data`; with batches, (r / batch_rows) x batch_stride + (r % batch_rows)
/// x row_stride elements after it. No two elements may share memory. The stride of a dimension of size 1 is never used.
/// Kernels are fastest with a column_stride of 1. Make a view with ce_matrix(), ce_vector(), ce_batched() or
/// ce_class_dimension_second(), or set every field.
///
/// A call without rows has tensors with rows = 0 and the columns and dtypes that they would otherwise have; `data` may
/// then be NULL.
typedef struct ce_tensor {
  void* data;  ///< the first element, aligned to the size of an element
  ce_dtype dtype;
  int64_t rows;
  int64_t columns;        ///< 1 or more; 0 if softmax or its gradient has nothing to compute
  int64_t row_stride;     ///< elements from one row to the next, or CE_CONTIGUOUS
  int64_t column_stride;  ///< elements from one column to the next
  int64_t batch_rows;     ///< rows of a batch, a divisor of `rows`; 0: one batch
  int64_t batch_stride;   ///< elements from one batch to the next; only with batch_rows
} ce_tensor;

/// Dense [rows, columns].
static inline ce_tensor ce_matrix(void* data, ce_dtype dtype, int64_t rows, int64_t columns) {
  ce_tensor tensor;
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.rows = rows;
  tensor.columns = columns;
  tensor.row_stride = CE_CONTIGUOUS;
  tensor.column_stride = 1;
  tensor.batch_rows = 0;
  tensor.batch_stride = 0;
  return tensor;
}

/// Dense [count].
static inline ce_tensor ce_vector(void* data, ce_dtype dtype, int64_t count) {
  return ce_matrix(data, dtype, count, 1);
}

/// A dense [outer, classes, inner] array as rows of classes: what PyTorch calls (N, C, d1, ...), with the
/// product of d1, ... as `inner`. Row o x inner + i holds the classes of position i of item o, so that the
/// row's target is element [o, i] of a dense [outer, inner] array.
/// \returns CE_STATUS_INVALID_ARGUMENT for a negative size, or more rows than 64 bits count
CE_C_API ce_status ce_class_dimension_second(void* data, ce_dtype dtype, int64_t outer, int64_t classes,
                                             int64_t inner, ce_tensor* view);

/// A [batches, batch_rows, columns] view with its own strides, as rows: `logits[:, :-1, :]` of a dense [b, s, v] array
/// has b batches, s - 1 rows, v columns, a batch_stride of s x v elements, and CE_CONTIGUOUS.
/// \returns CE_STATUS_INVALID_ARGUMENT for a negative size, or more rows than 64 bits count
CE_C_API ce_status ce_batched(void* data, ce_dtype dtype, int64_t batches, int64_t batch_rows,
                              int64_t columns, int64_t batch_stride, int64_t row_stride, ce_tensor* view);

// ---- Contexts -----------------------------------------------------------------------------------------

/// A device, a database and the kernels chosen so far.
typedef struct ce_context ce_context;

/// What a call does if the database has no winner for its problem. A fallback is the config that is most promising by
/// the measurements of near problems, or a safe default.
typedef int32_t ce_policy;
enum {
  CE_POLICY_DEFAULT = 0,  ///< the environment variable CE_POLICY, else CE_POLICY_TUNE
  CE_POLICY_TUNE = 1,    ///< tune it now, once; if another thread or process tunes it, wait for at most three
                         ///< times tuning_seconds, then use a fallback until the winner is there
  CE_POLICY_LOOKUP = 2,  ///< never tune; use a fallback
  CE_POLICY_FROZEN = 3,  ///< fail with CE_STATUS_NOT_TUNED
  CE_POLICY_BACKGROUND =
      4  ///< use a fallback at once; a thread of the context tunes, and later calls use the winner
};

/// A `tuning_seconds` that leaves the choice to ce: 2 on a GPU, no bound on the host device.
#define CE_TUNING_SECONDS_DEFAULT (-1.0)

/// Allocates the device memory of a context: workspaces, and temporary memory of tuning. Returns `bytes`, 1 or more,
/// aligned to 256 bytes, that work on `stream` may use at once; NULL if memory is short. Any thread may call this
/// function and ce_release with the `allocator_state` of the options; they must not call the context.
typedef void* (*ce_allocate)(void* state, size_t bytes, ce_stream stream);
/// Frees memory that a ce_allocate returned. All work with it has ended.
typedef void (*ce_release)(void* state, void* memory, ce_stream stream);

typedef struct ce_context_options {
  size_t struct_size;
  /// "cuda", "cuda:1", "host"; NULL or "": the environment variable CE_DEVICE, else the thread's current CUDA device,
  /// else GPU 0, else the host, which the log warns about once.
  const char* device;
  /// The file of the tuning database; NULL or "": the environment variable CE_DB, else
  /// $XDG_DATA_HOME/ce/ce.db, else ~/.local/share/ce/ce.db.
  const char* database;
  /// Seconds that tuning a problem may take; 0: no bound. Work that has begun by then is finished. A call that waits
  /// for another tuning thread or process waits at most three times as long.
  double tuning_seconds;
  /// Device memory in bytes that a problem's tensors may take during tuning. 0: a quarter of the free memory, at most 2
  /// GiB; 256 MiB on the host device.
  int64_t scratch_bytes;
  /// Device memory in bytes that is reserved at once for the workspaces of calls captured into graphs, since a capture
  /// cannot allocate. A captured mean or sum takes 4 bytes a row, with a z-loss 8.
  int64_t capture_bytes;
  ce_policy policy;
  /// 0 or 1: products of linear layers may also add up partial sums in the order in which these end; the result then
  /// differs in its last bits between calls. The environment variable CE_NONDETERMINISTIC_PRODUCTS=1 allows it, too.
  int32_t nondeterministic_products;
  ce_allocate allocate;  ///< NULL: the device's own memory. The allocator must outlive the context.
  ce_release release;    ///< NULL if `allocate` is NULL
  void* allocator_state;
} ce_context_options;
#define CE_CONTEXT_OPTIONS_INIT                                                             \
  {                                                                                         \
    sizeof(ce_context_options), NULL, NULL, CE_TUNING_SECONDS_DEFAULT, 0, (int64_t)8 << 20, \
        CE_POLICY_DEFAULT, 0, NULL, NULL, NULL                                              \
  }

/// \param options  NULL: all defaults
/// \param context  receives the handle, for ce_context_destroy(); NULL if the call fails
/// \returns CE_STATUS_UNSUPPORTED if the device does not exist or is too old, CE_STATUS_INVALID_ARGUMENT for an invalid
/// option or environment variable, CE_STATUS_DEVICE, CE_STATUS_OUT_OF_MEMORY
CE_C_API ce_status ce_context_create(const ce_context_options* options, ce_context** context);

/// Sets options of the default contexts, of which each used device has one. A `device` applies to all threads, as
/// CE_DEVICE does. Only before the first call with a context of NULL; the latest options count.
/// \param options  NULL: all defaults
/// \returns CE_STATUS_INVALID_ARGUMENT for an invalid option, CE_STATUS_UNSUPPORTED if a call has already used a
/// default context
CE_C_API ce_status ce_configure_default_context(const ce_context_options* options);

/// Ends tuning in the background, waits for the config that is being tried, and frees everything that belongs to the
/// context: its plans, memory and choices must not be used any more. Does nothing for NULL.
CE_C_API void ce_context_destroy(ce_context* context);

/// A buffer of this many bytes holds every device name with its null byte.
#define CE_DEVICE_NAME_SIZE 32

/// Writes "cuda:0" or "host" into `text`, which has `size` bytes.
/// \returns CE_STATUS_INVALID_ARGUMENT if `size` is too small; for a context of NULL, also the errors of
/// ce_context_create()
CE_C_API ce_status ce_device_name(ce_context* context, char* text, size_t size);

/// Number of kernels that the context had to compile; 0 with a warm database.
CE_C_API ce_status ce_compiled(ce_context* context, int32_t* count);

/// Ends tuning in the background for good, and waits for the config that is being tried. Problems without a winner keep
/// their fallback.
CE_C_API ce_status ce_stop_background(ce_context* context);

/// Waits for the stream. \returns CE_STATUS_DEVICE
CE_C_API ce_status ce_synchronize(ce_context* context, ce_stream stream);

/// Rows whose target was neither a class nor ignore_index.
typedef struct ce_bad_targets {
  size_t struct_size;
  int64_t count;
  int64_t first_row;         ///< the smallest such index; -1: not known
  int64_t first_target;      ///< target of that row; beyond -2^23 and 2^23 - 1 the nearest of these
  int32_t has_first_target;  ///< 0: not known
  int32_t reserved;
} ce_bad_targets;
#define CE_BAD_TARGETS_INIT \
  { sizeof(ce_bad_targets), 0, 0, 0, 0, 0 }

/// Waits for the stream and checks whether a call on it has met a target out of range since the last check. It does not
/// check other streams; on the host device each thread counts as a stream. A replayed graph counts for the stream that
/// its calls were captured on.
/// \param found  optional: receives the result, in as many fields as its struct_size covers; its count is 0 if there
/// was no such row
/// \returns CE_STATUS_TARGET_OUT_OF_RANGE, once for each row; CE_STATUS_DEVICE
CE_C_API ce_status ce_check(ce_context* context, ce_stream stream, ce_bad_targets* found);

/// Checks the finished calls on every stream: it waits for the default stream, and so for the streams that synchronise
/// with it.
CE_C_API ce_status ce_check_all(ce_context* context, ce_bad_targets* found);

// ---- Choices and plans --------------------------------------------------------------------------------

/// Which kernel runs for a problem, and why. It is valid as long as its context, and so are its texts. For NULL, texts
/// are "" and numbers are those of a call without rows.
typedef struct ce_choice ce_choice;

/// How a config came to be chosen.
typedef int32_t ce_origin;
enum {
  CE_ORIGIN_TUNED = 0,     ///< measured by this process
  CE_ORIGIN_DATABASE = 1,  ///< measured before
  CE_ORIGIN_NEAREST = 2,   ///< the most promising config, by measurements of near problems
  CE_ORIGIN_FALLBACK = 3,  ///< a safe default: there were no measurements, and tuning was not possible
  CE_ORIGIN_ASSIGNED = 4   ///< named by the rank that decides for all ranks, or by ce_use()
};

/// The text form of the config, as in `ce-tune db show`; "" if the call had no rows.
CE_C_API const char* ce_choice_config(const ce_choice* choice);
CE_C_API ce_origin ce_choice_origin(const ce_choice* choice);
CE_C_API const char* ce_choice_reason(const ce_choice* choice);
/// The key, an argument of `ce-tune db show`.
CE_C_API const char* ce_choice_key(const ce_choice* choice);
/// 1 if a later call may run another config, else 0. A plan keeps its config.
CE_C_API int32_t ce_choice_provisional(const ce_choice* choice);

/// Microseconds a row when the config was measured; 0: this process has no measurement.
CE_C_API double ce_choice_row_us(const ce_choice* choice);
/// Makes problems of a key run a config from now on, if the device can. Ranks with their own collectives use it to run
/// the config that another rank's prepare function chose. Calls that a thread has made before keep their kernel.
/// \param key     ce_choice_key()
/// \param config  ce_choice_config()
/// \returns CE_STATUS_INVALID_ARGUMENT for NULL
CE_C_API ce_status ce_use(ce_context* context, const char* key, const char* config);

/// A problem bound to its kernel and its tensors: nothing is left to decide. The memory of the tensors and the context
/// must outlive it. Several threads may run one plan if they order their streams: all runs use the same tensors.
typedef struct ce_plan ce_plan;

/// Enqueues the kernel on the stream, as the call of the operation would, but without any lookup.
/// \returns CE_STATUS_DEVICE
CE_C_API ce_status ce_plan_run(const ce_plan* plan, ce_stream stream);
/// NULL for NULL.
CE_C_API const ce_choice* ce_plan_choice(const ce_plan* plan);
/// Does nothing for NULL.
CE_C_API void ce_plan_destroy(ce_plan* plan);

// ---- Operations ---------------------------------------------------------------------------------------
//
// Each operation has a function that runs it and one that prepares it, with the same arguments:
//
//     context  NULL: the default context
//     options  NULL: all defaults, which cost nothing: they are not in the kernel
//     tensors  an optional tensor that is not given is NULL
//     stream   where it is enqueued; on the host device it runs before the call returns
//     choice   optional: receives which kernel ran and why
//
// The first call on a new shape tunes (see ce_policy) and takes seconds; later calls, and later processes
// with the same database, launch at once. While the stream is captured into a graph nothing is tuned,
// synchronised or allocated. Every problem of the same operation, dtypes, options, columns and power-of-two
// range of rows shares a kernel.
//
// ce_..._prepare() does everything except the launch: it tunes ahead, and its plan (for ce_plan_destroy(); NULL if the
// call fails) is the fastest way to repeat the call. The plan keeps the kernel that was found. That is a fallback if
// the stream is being captured, another thread or process tunes the problem, or the policy is CE_POLICY_BACKGROUND.
//
// Both return CE_STATUS_INVALID_ARGUMENT, naming the option or tensor and the expected value, and CE_STATUS_NOT_TUNED,
// before anything is enqueued; CE_STATUS_UNSUPPORTED; CE_STATUS_COMPILE; CE_STATUS_VERIFICATION; CE_STATUS_DEVICE;
// CE_STATUS_OUT_OF_MEMORY.
//
// Matrices are [rows, columns] of f32, f16 or bf16; arithmetic is in f32. A tensor of [rows], [columns] or [1] is
// contiguous, as one column or as one row. An output must not overlap any other tensor between its first and last
// element, unless its description allows exactly the same view as another tensor's. Tensors that are only read may
// overlap. Do not run two calls that write the same memory at once; this includes replayed graphs.

/// Softmax has no options yet.
typedef struct ce_softmax_options {
  size_t struct_size;
} ce_softmax_options;
#define CE_SOFTMAX_OPTIONS_INIT \
  { sizeof(ce_softmax_options) }

typedef struct ce_softmax_tensors {
  size_t struct_size;
  const ce_tensor* input;   ///< [rows, columns]
  const ce_tensor* output;  ///< as the input; may be the input itself
} ce_softmax_tensors;
#define CE_SOFTMAX_TENSORS_INIT \
  { sizeof(ce_softmax_tensors), NULL, NULL }

/// Softmax over each row: y[i] = exp(x[i] - max(x)) / sum_j exp(x[j] - max(x)).
///
/// A row that holds NaN, +infinity, or nothing but -infinity becomes NaN, as in PyTorch.
CE_C_API ce_status ce_softmax(ce_context* context, const ce_softmax_options* options,
                              const ce_softmax_tensors* tensors, ce_stream stream, const ce_choice** choice);
CE_C_API ce_status ce_softmax_prepare(ce_context* context, const ce_softmax_options* options,
                                      const ce_softmax_tensors* tensors, ce_stream stream, ce_plan** plan);

/// LogSoftmax has no options yet.
typedef struct ce_log_softmax_options {
  size_t struct_size;
} ce_log_softmax_options;
#define CE_LOG_SOFTMAX_OPTIONS_INIT \
  { sizeof(ce_log_softmax_options) }

typedef struct ce_log_softmax_tensors {
  size_t struct_size;
  const ce_tensor* input;   ///< [rows, columns]
  const ce_tensor* output;  ///< as the input; may be the input itself
} ce_log_softmax_tensors;
#define CE_LOG_SOFTMAX_TENSORS_INIT \
  { sizeof(ce_log_softmax_tensors), NULL, NULL }

/// The logarithm of softmax over each row: y[i] = x[i] - log(sum_j exp(x[j])). A row without a softmax (see
/// ce_softmax()) becomes NaN.
CE_C_API ce_status ce_log_softmax(ce_context* context, const ce_log_softmax_options* options,
                                  const ce_log_softmax_tensors* tensors, ce_stream stream,
                                  const ce_choice** choice);
CE_C_API ce_status ce_log_softmax_prepare(ce_context* context, const ce_log_softmax_options* options,
                                          const ce_log_softmax_tensors* tensors, ce_stream stream,
                                          ce_plan** plan);

/// SoftmaxBackward has no options yet.
typedef struct ce_softmax_backward_options {
  size_t struct_size;
} ce_softmax_backward_options;
#define CE_SOFTMAX_BACKWARD_OPTIONS_INIT \
  { sizeof(ce_softmax_backward_options) }

typedef struct ce_softmax_backward_tensors {
  size_t struct_size;
  const ce_tensor* output;       ///< [rows, columns]: y, what ce_softmax() wrote
  const ce_tensor* output_grad;  ///< as the output: dy
  const ce_tensor* input_grad;   ///< as the output: dx; may be output_grad itself
} ce_softmax_backward_tensors;
#define CE_SOFTMAX_BACKWARD_TENSORS_INIT \
  { sizeof(ce_softmax_backward_tensors), NULL, NULL, NULL }

/// The gradient of softmax: dx[i] = y[i] (dy[i] - sum_j dy[j] y[j]).
CE_C_API ce_status ce_softmax_backward(ce_context* context, const ce_softmax_backward_options* options,
                                       const ce_softmax_backward_tensors* tensors, ce_stream stream,
                                       const ce_choice** choice);
CE_C_API ce_status ce_softmax_backward_prepare(ce_context* context,
                                               const ce_softmax_backward_options* options,
                                               const ce_softmax_backward_tensors* tensors, ce_stream stream,
                                               ce_plan** plan);

/// LogSoftmaxBackward has no options yet.
typedef struct ce_log_softmax_backward_options {
  size_t struct_size;
} ce_log_softmax_backward_options;
#define CE_LOG_SOFTMAX_BACKWARD_OPTIONS_INIT \
  { sizeof(ce_log_softmax_backward_options) }

typedef struct ce_log_softmax_backward_tensors {
  size_t struct_size;
  const ce_tensor* output;       ///< [rows, columns]: y, what ce_log_softmax() wrote
  const ce_tensor* output_grad;  ///< as the output: dy
  const ce_tensor* input_grad;   ///< as the output: dx; may be output_grad itself
} ce_log_softmax_backward_tensors;
#define CE_LOG_SOFTMAX_BACKWARD_TENSORS_INIT \
  { sizeof(ce_log_softmax_backward_tensors), NULL, NULL, NULL }

/// The gradient of log softmax: dx[i] = dy[i] - exp(y[i]) sum_j dy[j].
CE_C_API ce_status ce_log_softmax_backward(ce_context* context,
                                           const ce_log_softmax_backward_options* options,
                                           const ce_log_softmax_backward_tensors* tensors, ce_stream stream,
                                           const ce_choice** choice);
CE_C_API ce_status ce_log_softmax_backward_prepare(ce_context* context,
                                                   const ce_log_softmax_backward_options* options,
                                                   const ce_log_softmax_backward_tensors* tensors,
                                                   ce_stream stream, ce_plan** plan);

/// How the losses of the rows become the result, as in PyTorch's `reduction`.
typedef int32_t ce_reduction;
enum { CE_REDUCTION_NONE = 0, CE_REDUCTION_MEAN = 1, CE_REDUCTION_SUM = 2 };

typedef struct ce_cross_entropy_options {
  size_t struct_size;
  int64_t ignore_index;  ///< not used with probabilities
  ce_reduction reduction;
  float label_smoothing;  ///< e below, 0 to 1; 0: off
  float z_loss;           ///< factor of lse squared, 0 to 2^60; 0: off
  float softcap;          ///< cap below, 2^-60 to 2^60; 0: off
  float logit_scale;      ///< scale below, 2^-60 to 2^60; 1: off
  float token_scaling;    ///< power below, 0 to 16, with class indices; 0: off. Less than e^-32 counts as 0
} ce_cross_entropy_options;
#define CE_CROSS_ENTROPY_OPTIONS_INIT \
  { sizeof(ce_cross_entropy_options), -100, CE_REDUCTION_MEAN, 0, 0, 0, 1, 0 }

typedef struct ce_cross_entropy_tensors {
  size_t struct_size;
  const ce_tensor* logits;  ///< [rows, columns]
  const ce_tensor* target;  ///< [rows] class indices, i32 or i64; or probabilities, as the logits
  const ce_tensor* weight;  ///< optional: [columns], f32 or the logits' dtype
  const ce_tensor*
      upstream;           ///< optional, with grad: [1] or [rows] of the loss's dtype; multiplies the gradient
  const ce_tensor* loss;  ///< [rows] for CE_REDUCTION_NONE, else [1]; f32 or the logits' dtype
  const ce_tensor* grad;  ///< optional: as the logits; may be the logits themselves
  const ce_tensor*
      z_loss_out;        ///< optional, with a factor z_loss: as the loss; the z-loss alone, reduced alike
  const ce_tensor* lse;  ///< optional: [rows] f32; what ce_cross_entropy_backward() reads
  const ce_tensor*
      argmax;            ///< optional: [rows] i64; index of the first largest logit; NaN is larger than all
  const ce_tensor* hit;  ///< optional, with class indices: [rows] u8; 1 where argmax is the target
  const ce_tensor*
      logprob;  ///< optional, with class indices: [rows] f32; z[t] - lse, without options but those of z
  const ce_tensor* entropy;  ///< optional: [rows] f32; -sum_j p[j] log p[j] with p = softmax of z
  /// optional: [rows] f32; the rounding error of lse: lse + lse_low is as exact as one pass
  const ce_tensor* lse_low;
  const ce_tensor* row_weight;  ///< optional: [rows] f32; multiplies the row's loss, z-loss and gradient
  /// optional: [rows] f32; multiplies logit_scale, as 1 / temperature of the row. A row whose product is not within
  /// 2^-60 to 2^60 is NaN, unless it is ignored.
  const ce_tensor* row_scale;
  const ce_tensor* divisor;  ///< optional, with CE_REDUCTION_MEAN: [1] f32; divides the sums
  /// optional, with grad: [rows] f32; gradients of the entropies, which enter that of the logits:
  /// dH/dz[j] = -p[j] (log p[j] + H). Neither upstream nor row_weight multiplies them.
  const ce_tensor* entropy_upstream;
  const ce_tensor* lse_upstream;  ///< optional, with grad: [rows] f32; gradients of lse: dlse/dz[j] = p[j]
  /// optional: [rows] f32: lse, if the caller knows it. The kernel then reads only the targets' logits; losses and
  /// logprob are as exact as this lse. Only with class indices, and without label_smoothing, grad
  /// (ce_cross_entropy_backward() computes it), lse, entropy, argmax and hit.
  const ce_tensor* given_lse;
} ce_cross_entropy_tensors;
#define CE_CROSS_ENTROPY_TENSORS_INIT                                                                   \
  {                                                                                                     \
    sizeof(ce_cross_entropy_tensors), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL                                                  \
  }

/// Cross entropy of rows of logits x, and on demand its gradient with respect to the logits, in one pass.
///
/// The logits are transformed first: z = cap tanh(scale x / cap), or scale x without a cap. With
/// lse = log(sum_j exp(z[j])), class weights w (1 without) and smoothing e, the loss of a row is
///
///     target t:         (1 - e) w[t] (lse - z[t]) + e / columns sum_i w[i] (lse - z[i])   + z-loss
///     probabilities p:  sum_i w[i] ((1 - e) p[i] + e / columns) (lse - z[i])              + z-loss
///
/// times the row's weight, and times p[t]^token_scaling, with p[t] the probability of the target, which is treated as a
/// constant (no gradient is taken of it). The z-loss is z_loss x lse squared, without class weights. A term whose
/// weight, probability or (1 - e) is 0 is 0, also if the class is masked with -infinity.
///
/// CE_REDUCTION_MEAN divides by the sum of w[t] over the rows that are not ignored (without weights their
/// number), the z-loss by their number; with probabilities, both by the number of rows. If all rows are
/// ignored the mean is NaN. With a `divisor` it divides both by that instead; without rows it is then 0. Weights of rows are
/// not counted.
///
/// A row whose target is `ignore_index` has loss 0, z-loss 0, gradient 0, hit 0, logprob 0 and entropy 0. A target that
/// is neither a class nor `ignore_index` never reads outside the row: that row's loss, z-loss, gradient, logprob and
/// entropy are NaN, its hit is 0, and ce_check() reports it. `lse`, of z, and `argmax`, of the logits, are written for
/// every row; `lse` is NaN if a z is +infinity or NaN. With a cap the z of a logit of +infinity is the cap.
CE_C_API ce_status ce_cross_entropy(ce_context* context, const ce_cross_entropy_options* options,
                                    const ce_cross_entropy_tensors* tensors, ce_stream stream,
                                    const ce_choice** choice);
CE_C_API ce_status ce_cross_entropy_prepare(ce_context* context, const ce_cross_entropy_options* options,
                                            const ce_cross_entropy_tensors* tensors, ce_stream stream,
                                            ce_plan** plan);

/// Options have the same meaning as for ce_cross_entropy(), and must equal those of that call:
/// ce_cross_entropy_backward_of() copies them.
typedef struct ce_cross_entropy_backward_options {
  size_t struct_size;
  int64_t ignore_index;
  ce_reduction reduction;
  float label_smoothing;
  float z_loss;
  float softcap;
  float logit_scale;
  float token_scaling;
} ce_cross_entropy_backward_options;
#define CE_CROSS_ENTROPY_BACKWARD_OPTIONS_INIT \
  { sizeof(ce_cross_entropy_backward_options), -100, CE_REDUCTION_MEAN, 0, 0, 0, 1, 0 }

/// Returns the options for the gradient of a ce_cross_entropy() with these options, which may be NULL as there.
static inline ce_cross_entropy_backward_options ce_cross_entropy_backward_of(
    const ce_cross_entropy_options* forward) {
  ce_cross_entropy_backward_options options = CE_CROSS_ENTROPY_BACKWARD_OPTIONS_INIT;
  if (forward == NULL) return options;
  options.ignore_index = forward->ignore_index;
  options.reduction = forward->reduction;
  options.label_smoothing = forward->label_smoothing;
  options.z_loss = forward->z_loss;
  options.softcap = forward->softcap;
  options.logit_scale = forward->logit_scale;
  options.token_scaling = forward->token_scaling;
  return options;
}

typedef struct ce_cross_entropy_backward_tensors {
  size_t struct_size;
  const ce_tensor* logits;    ///< [rows, columns]
  const ce_tensor* target;    ///< [rows] class indices, i32 or i64; or probabilities, as the logits
  const ce_tensor* weight;    ///< optional: [columns], f32 or the logits' dtype
  const ce_tensor* lse;       ///< [rows] f32: ce_cross_entropy()'s
  const ce_tensor* upstream;  ///< optional: [1] or [rows], f32 or the logits' dtype; multiplies the gradient
  const ce_tensor* grad;      ///< as the logits; may be the logits themselves
  /// with token_scaling, else optional; with class indices: [rows] f32, from ce_cross_entropy(). With it the gradient
  /// of a target's logit is as exact as that of one pass: lse alone has lost what f32 rounds off beside large logits.
  const ce_tensor* logprob;
  /// optional: [rows] f32, from ce_cross_entropy(). With it the whole gradient is as exact as that of one pass: an lse
  /// of 10^4 alone is off by up to 5e-4, and so is each probability.
  const ce_tensor* lse_low;
  const ce_tensor* entropy;           ///< with entropy_upstream: [rows] f32, ce_cross_entropy()'s
  const ce_tensor* row_weight;        ///< optional: [rows] f32
  const ce_tensor* row_scale;         ///< optional: [rows] f32
  const ce_tensor* divisor;           ///< optional, with CE_REDUCTION_MEAN: [1] f32
  const ce_tensor* entropy_upstream;  ///< optional: [rows] f32
  const ce_tensor* lse_upstream;      ///< optional: [rows] f32
} ce_cross_entropy_backward_tensors;
#define CE_CROSS_ENTROPY_BACKWARD_TENSORS_INIT                                                             \
  {                                                                                                        \
    sizeof(ce_cross_entropy_backward_tensors), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        NULL, NULL, NULL, NULL                                                                             \
  }

/// The gradient of ce_cross_entropy() with respect to the logits, from the logsumexp that it wrote.
CE_C_API ce_status ce_cross_entropy_backward(ce_context* context,
                                             const ce_cross_entropy_backward_options* options,
                                             const ce_cross_entropy_backward_tensors* tensors,
                                             ce_stream stream, const ce_choice** choice);
CE_C_API ce_status ce_cross_entropy_backward_prepare(ce_context* context,
                                                     const ce_cross_entropy_backward_options* options,
                                                     const ce_cross_entropy_backward_tensors* tensors,
                                                     ce_stream stream, ce_plan** plan);

/// Stands for a dtype that the caller does not choose.
#define CE_DTYPE_UNSET (-1)

/// Options of ce_linear_cross_entropy().
typedef struct ce_linear_cross_entropy_options {
  size_t struct_size;
  /// The options of cross entropy; NULL: all defaults.
  const ce_cross_entropy_options* cross_entropy;
  /// Bytes that a call may take beyond its tensors. 0: a tenth of the free memory when the first problem of this shape
  /// runs.
  int64_t memory_budget;
  /// Tokens of a chunk; 0: as many as the budget holds, or a fraction of them that the race of the first call found
  /// faster.
  int64_t chunk_tokens;
  ce_dtype logits_dtype;  ///< CE_DTYPE_F32, or that of hidden; CE_DTYPE_UNSET: that of hidden
  /// Dtype in which the gradient of the weight is summed over chunks: CE_DTYPE_F32, or that of the weight's gradient.
  /// CE_DTYPE_UNSET: f32 if there is more than one chunk and the budget holds it.
  ce_dtype accumulation;
  /// An upper bound for the number of tokens whose target is not ignore_index: the products then leave out the ignored
  /// tokens. For these the losses, hidden_grad, logprob and entropy are 0, lse is NaN, argmax -1 and hit 0. If more
  /// tokens count than this bound, all losses, logprobs, entropies, weight_grad and bias_grad are NaN, argmax -1 and hit
  /// 0. Only with class indices. -1: all tokens are in the products.
  int64_t valid_tokens;
  /// 1: the product of the logits writes their exponentials, and gradients are made of these without another pass over
  /// the logits; refused if the kernel does not support the call (linear.hpp names the conditions). 0: gradients are
  /// made of logits. -1: the faster of the two, by a race at the first call.
  int32_t exponentials;
  int32_t reserved;  ///< 0
} ce_linear_cross_entropy_options;
#define CE_LINEAR_CROSS_ENTROPY_OPTIONS_INIT \
  { sizeof(ce_linear_cross_entropy_options), NULL, 0, 0, CE_DTYPE_UNSET, CE_DTYPE_UNSET, -1, -1, 0 }

typedef struct ce_linear_cross_entropy_tensors {
  size_t struct_size;
  const ce_tensor* hidden;  ///< [tokens, hidden], f32, f16 or bf16
  const ce_tensor* weight;  ///< [classes, hidden], as hidden
  const ce_tensor* bias;    ///< optional: [classes], f32, f16 or bf16
  const ce_tensor* target;  ///< [tokens] i32 or i64; or probabilities [tokens, classes] of the logits' dtype
  const ce_tensor* loss;    ///< optional: [tokens] for CE_REDUCTION_NONE, else [1]; f32 or the logits' dtype
  const ce_tensor* hidden_grad;   ///< optional: as hidden
  const ce_tensor* weight_grad;   ///< optional: dense [classes, hidden], f32 or the dtype of the weight
  const ce_tensor* bias_grad;     ///< optional, with bias: [classes], f32 or the dtype of the bias
  const ce_tensor* upstream;      ///< optional, with gradients: [1] or [tokens] of the loss's dtype
  const ce_tensor* class_weight;  ///< optional: [classes], f32 or the logits' dtype
  const ce_tensor* z_loss_out;    ///< this tensor and those below are as in ce_cross_entropy_tensors
  const ce_tensor* lse;
  const ce_tensor* argmax;
  const ce_tensor* hit;
  const ce_tensor* logprob;
  const ce_tensor* entropy;
  const ce_tensor* row_weight;
  const ce_tensor* row_scale;
  const ce_tensor* divisor;
  const ce_tensor* entropy_upstream;
  const ce_tensor* lse_upstream;
  /// optional: u8 [workspace_bytes of the schedule], aligned to 256 bytes. Without it the context keeps memory for each
  /// stream. A call that is captured into a graph needs memory that an earlier call outside of a capture has allocated.
  const ce_tensor* workspace;
} ce_linear_cross_entropy_tensors;
#define CE_LINEAR_CROSS_ENTROPY_TENSORS_INIT                                                             \
  {                                                                                                      \
    sizeof(ce_linear_cross_entropy_tensors), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL                           \
  }

/// Cross entropy of the logits hidden x weight^T + bias, and on demand the gradients of all three, in chunks of tokens:
/// only the logits of one chunk at a time are in memory. The products are cuBLASLt's. A gradient that is not given
/// costs no product. A target out of range is reported with its row in its chunk.
/// \returns CE_STATUS_UNSUPPORTED also if there is no cuBLASLt, or if the stream is being captured and scratch memory
/// is not allocated yet
CE_C_API ce_status ce_linear_cross_entropy(ce_context* context,
                                           const ce_linear_cross_entropy_options* options,
                                           const ce_linear_cross_entropy_tensors* tensors, ce_stream stream,
                                           const ce_choice** choice);

/// How ce_linear_cross_entropy() divides a call.
typedef struct ce_linear_schedule {
  size_t struct_size;
  int64_t chunk_tokens;     ///< tokens of each chunk; the last may have fewer
  int64_t chunks;           ///< 0 without tokens
  int64_t workspace_bytes;  ///< beyond the tensors; before a race the largest of its plans
  ce_dtype accumulation;    ///< dtype in which the gradient of the weight is summed over chunks
  int32_t exponentials;     ///< 1: gradients are made of exponentials; 0: of logits
} ce_linear_schedule;
#define CE_LINEAR_SCHEDULE_INIT \
  { sizeof(ce_linear_schedule), 0, 0, 0, CE_DTYPE_F32, 0 }

/// Finds the schedule of a call. Enqueues nothing. Options of the loss, and dtypes of tensors of tokens, are checked by
/// the call itself.
/// \param schedule  receives it, in as many fields as its struct_size covers
CE_C_API ce_status ce_linear_cross_entropy_schedule(ce_context* context,
                                                    const ce_linear_cross_entropy_options* options,
                                                    const ce_linear_cross_entropy_tensors* tensors,
                                                    ce_linear_schedule* schedule);

/// How ce_cross_entropy() is spread over ranks that share the classes: each rank holds the logits of some neighbouring
/// classes, its shard, of the same rows. The results are those of one GPU with all classes, and bitwise equal on every
/// rank. Every rank runs ce_cross_entropy_shard(); an all-gather concatenates the statistics of all ranks;
/// ce_cross_entropy_merge() computes the results of rows, and ce_cross_entropy_shard_backward() the gradient of the
/// rank's own logits. Targets are indices among all classes, and weights cover all classes.
typedef struct ce_cross_entropy_shard_options {
  size_t struct_size;
  const ce_cross_entropy_options*
      options;          ///< options of cross entropy, the same on every rank; NULL: the defaults
  int64_t first_class;  ///< class of the logits' first column
  int64_t classes;      ///< number of classes on all ranks
  // Outputs that ce_cross_entropy_merge() must be able to write, 0 or 1:
  int32_t lse;       ///< lse also of rows without a target
  int32_t argmax;    ///< argmax or hit
  int32_t entropy;   ///< entropy, or its gradient
  int32_t reserved;  ///< 0
} ce_cross_entropy_shard_options;
#define CE_CROSS_ENTROPY_SHARD_OPTIONS_INIT \
  { sizeof(ce_cross_entropy_shard_options), NULL, 0, 0, 0, 0, 0, 0 }

typedef struct ce_cross_entropy_shard_tensors {
  size_t struct_size;
  const ce_tensor* logits;  ///< [rows, columns]: one class at least
  const ce_tensor* target;  ///< [rows] class indices, i32 or i64; or probabilities, as the logits
  const ce_tensor* weight;  ///< optional: [classes], f32 or the logits' dtype
  const ce_tensor*
      statistics;  ///< [rows, words] f32; ce_cross_entropy_shard_words() returns the number of words
  const ce_tensor* row_scale;  ///< optional: [rows] f32; as in ce_cross_entropy_tensors
} ce_cross_entropy_shard_tensors;
#define CE_CROSS_ENTROPY_SHARD_TENSORS_INIT \
  { sizeof(ce_cross_entropy_shard_tensors), NULL, NULL, NULL, NULL, NULL }

/// Number of 32-bit words that ce_cross_entropy_shard() writes for each row.
/// \param logits         dtype of the logits
/// \param probabilities  whether targets are probabilities, 0 or 1
CE_C_API ce_status ce_cross_entropy_shard_words(const ce_cross_entropy_shard_options* options,
                                                ce_dtype logits, int32_t probabilities, int64_t* words);

/// Computes the statistics of one rank's logits, row by row.
CE_C_API ce_status ce_cross_entropy_shard(ce_context* context, const ce_cross_entropy_shard_options* options,
                                          const ce_cross_entropy_shard_tensors* tensors, ce_stream stream,
                                          const ce_choice** choice);
CE_C_API ce_status ce_cross_entropy_shard_prepare(ce_context* context,
                                                  const ce_cross_entropy_shard_options* options,
                                                  const ce_cross_entropy_shard_tensors* tensors,
                                                  ce_stream stream, ce_plan** plan);

typedef struct ce_cross_entropy_merge_options {
  size_t struct_size;
  const ce_cross_entropy_options* options;  ///< NULL: the defaults
  int64_t classes;                          ///< number of classes on all ranks
  int32_t ranks;
  ce_dtype logits;        ///< their dtype
  int32_t probabilities;  ///< whether targets were probabilities, 0 or 1
  int32_t reserved;       ///< 0
} ce_cross_entropy_merge_options;
#define CE_CROSS_ENTROPY_MERGE_OPTIONS_INIT \
  { sizeof(ce_cross_entropy_merge_options), NULL, 0, 1, CE_DTYPE_F32, 0, 0 }

typedef struct ce_cross_entropy_merge_tensors {
  size_t struct_size;
  /// [ranks x rows, words] f32, rank by rank: written by ce_cross_entropy_shard() for exactly the outputs asked for
  const ce_tensor* statistics;
  const ce_tensor* target;      ///< [rows] class indices; NULL with probabilities
  const ce_tensor* weight;      ///< optional: [classes]
  const ce_tensor* loss;        ///< this tensor and those below are as in ce_cross_entropy_tensors
  const ce_tensor* z_loss_out;  ///< optional
  const ce_tensor* lse;         ///< optional
  const ce_tensor* argmax;      ///< optional
  const ce_tensor* hit;         ///< optional
  const ce_tensor* logprob;     ///< optional
  const ce_tensor* entropy;     ///< optional
  const ce_tensor* row_weight;  ///< optional
  const ce_tensor* row_scale;   ///< that of the statistics
  const ce_tensor* divisor;     ///< optional
  const ce_tensor* merged;      ///< optional: [rows, words] f32; what ce_cross_entropy_shard_backward() reads
} ce_cross_entropy_merge_tensors;
#define CE_CROSS_ENTROPY_MERGE_TENSORS_INIT                                                             \
  {                                                                                                     \
    sizeof(ce_cross_entropy_merge_tensors), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        NULL, NULL, NULL, NULL                                                                          \
  }

/// Computes loss and other results of rows from the statistics of all ranks.
CE_C_API ce_status ce_cross_entropy_merge(ce_context* context, const ce_cross_entropy_merge_options* options,
                                          const ce_cross_entropy_merge_tensors* tensors, ce_stream stream,
                                          const ce_choice** choice);
CE_C_API ce_status ce_cross_entropy_merge_prepare(ce_context* context,
                                                  const ce_cross_entropy_merge_options* options,
                                                  const ce_cross_entropy_merge_tensors* tensors,
                                                  ce_stream stream, ce_plan** plan);

typedef struct ce_cross_entropy_shard_backward_options {
  size_t struct_size;
  const ce_cross_entropy_options* options;  ///< NULL: the defaults
  int64_t first_class;                      ///< class of the logits' first column
  int64_t classes;                          ///< number of classes on all ranks
} ce_cross_entropy_shard_backward_options;
#define CE_CROSS_ENTROPY_SHARD_BACKWARD_OPTIONS_INIT \
  { sizeof(ce_cross_entropy_shard_backward_options), NULL, 0, 0 }

typedef struct ce_cross_entropy_shard_backward_tensors {
  size_t struct_size;
  const ce_tensor* logits;            ///< [rows, columns]
  const ce_tensor* target;            ///< as ce_cross_entropy_shard()'s
  const ce_tensor* weight;            ///< optional: [classes]
  const ce_tensor* statistics;        ///< [rows, words] f32: `merged` of ce_cross_entropy_merge()
  const ce_tensor* upstream;          ///< optional: [1] or [rows], f32 or the logits' dtype
  const ce_tensor* grad;              ///< as the logits; may be the logits themselves
  const ce_tensor* row_weight;        ///< optional
  const ce_tensor* row_scale;         ///< that of the statistics
  const ce_tensor* divisor;           ///< optional
  const ce_tensor* entropy_upstream;  ///< optional, if the statistics are for the entropy
  const ce_tensor* lse_upstream;      ///< optional
} ce_cross_entropy_shard_backward_tensors;
#define CE_CROSS_ENTROPY_SHARD_BACKWARD_TENSORS_INIT                                                       \
  {                                                                                                        \
    sizeof(ce_cross_entropy_shard_backward_tensors), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        NULL, NULL                                                                                         \
  }

/// Computes the gradient of one rank's logits.
CE_C_API ce_status ce_cross_entropy_shard_backward(ce_context* context,
                                                   const ce_cross_entropy_shard_backward_options* options,
                                                   const ce_cross_entropy_shard_backward_tensors* tensors,
                                                   ce_stream stream, const ce_choice** choice);
CE_C_API ce_status ce_cross_entropy_shard_backward_prepare(
    ce_context* context, const ce_cross_entropy_shard_backward_options* options,
    const ce_cross_entropy_shard_backward_tensors* tensors, ce_stream stream, ce_plan** plan);

/// Memory of one rank that the kernels of all ranks on its host write to. Its context must outlive it, and it must
/// outlive the last kernel of any rank that uses it.
typedef struct ce_peer_memory ce_peer_memory;

typedef struct ce_peer_memory_options {
  size_t struct_size;
  int32_t rank, ranks;
  int64_t bytes;    ///< ce_peer_memory_bytes_for(), the same on every rank
  double patience;  ///< seconds that a kernel waits for another rank, above 0
} ce_peer_memory_options;
#define CE_PEER_MEMORY_OPTIONS_INIT \
  { sizeof(ce_peer_memory_options), 0, 1, 0, 600.0 }

/// Bytes that suffice for `rows` rows, of which each rank sends `words` words (ce_cross_entropy_shard_words()).
CE_C_API ce_status ce_peer_memory_bytes_for(int32_t ranks, int64_t rows, int64_t words, int64_t* bytes);
/// \param memory  receives the handle, for ce_peer_memory_destroy(); NULL where the call fails
/// \returns CE_STATUS_INVALID_ARGUMENT, CE_STATUS_OUT_OF_MEMORY, CE_STATUS_UNSUPPORTED, CE_STATUS_DEVICE
CE_C_API ce_status ce_peer_memory_create(ce_context* context, const ce_peer_memory_options* options,
                                         ce_peer_memory** memory);
/// Frees it. Does nothing for NULL.
CE_C_API void ce_peer_memory_destroy(ce_peer_memory* memory);
#define CE_PEER_DESCRIPTION_BYTES 128
/// Describes this memory to the other ranks.
/// \param description  receives CE_PEER_DESCRIPTION_BYTES
CE_C_API ce_status ce_peer_memory_describe(const ce_peer_memory* memory, void* description);
/// \param descriptions  those of all ranks in their order, including this one's
/// \returns CE_STATUS_UNSUPPORTED naming the rank that cannot be reached from here, and why; CE_STATUS_INVALID_ARGUMENT
/// for
///                   descriptions that belong to other memory; in both cases nothing has changed
CE_C_API ce_status ce_peer_memory_connect(ce_peer_memory* memory, const void* descriptions, size_t bytes);
/// Tells all ranks that this rank will not take part in a call that they may be waiting in: they end as if it were
/// missing. Does nothing for NULL.
CE_C_API void ce_peer_memory_give_up(ce_peer_memory* memory);

/// If ranks reach each other's memory, one kernel replaces the shard, all-gather, merge and backward steps: it reads
/// the logits once, and the kernels of the ranks send each other statistics of each row while they run. All ranks run
/// it in the same order with the same memory. A rank that waits longer than the memory's patience gives up: from that
/// row on, the rows of all ranks are NaN, and ce_check() fails with CE_STATUS_DEVICE.
typedef struct ce_cross_entropy_exchange_options {
  size_t struct_size;
  const ce_cross_entropy_options* options;  ///< of the whole, the same on every rank; NULL: the defaults
  int64_t first_class;                      ///< class of the logits' first column
  int64_t classes;                          ///< number of classes on all ranks
  const ce_peer_memory* peers;              ///< connected
} ce_cross_entropy_exchange_options;
#define CE_CROSS_ENTROPY_EXCHANGE_OPTIONS_INIT \
  { sizeof(ce_cross_entropy_exchange_options), NULL, 0, 0, NULL }

/// Logits, the gradient (required) and probabilities cover this rank's columns; weights and targets cover all classes.
/// given_lse and lse_low must not be given.
typedef ce_cross_entropy_tensors ce_cross_entropy_exchange_tensors;
#define CE_CROSS_ENTROPY_EXCHANGE_TENSORS_INIT CE_CROSS_ENTROPY_TENSORS_INIT

/// Computes loss and gradient of a rank's logits.
CE_C_API ce_status ce_cross_entropy_exchange(ce_context* context,
                                             const ce_cross_entropy_exchange_options* options,
                                             const ce_cross_entropy_exchange_tensors* tensors,
                                             ce_stream stream, const ce_choice** choice);
CE_C_API ce_status ce_cross_entropy_exchange_prepare(ce_context* context,
                                                     const ce_cross_entropy_exchange_options* options,
                                                     const ce_cross_entropy_exchange_tensors* tensors,
                                                     ce_stream stream, ce_plan** plan);
/// Whether the device has a kernel for such a call, so that ranks can agree before one of them waits; `peers` is not
/// checked.
/// \param possible  receives 0 or 1
CE_C_API ce_status ce_cross_entropy_exchange_is_possible(ce_context* context,
                                                         const ce_cross_entropy_exchange_options* options,
                                                         const ce_cross_entropy_exchange_tensors* tensors,
                                                         int32_t* possible);

/// Multiplies a gradient in place by the gradient of the loss, if that becomes known only after ce_cross_entropy()
/// wrote both: enqueues grad *= upstream. If the factor is 1, which is the usual case, the kernel reads nothing else
/// and takes a few microseconds. The product is computed in f32 and rounded once.
/// \param grad      f32, f16 or bf16 of any rows and columns
/// \param upstream  [1] of f32 or the dtype of grad, in device memory
CE_C_API ce_status ce_scale_gradient(ce_context* context, const ce_tensor* grad, const ce_tensor* upstream,
                                     ce_stream stream);

// ---- Memory -------------------------------------------------------------------------------------------

/// Memory of a context's device, for programs without an allocator of their own. The context must outlive it.
typedef struct ce_memory ce_memory;

/// \param memory  receives the handle, for ce_memory_destroy(); NULL where the call fails
/// \returns CE_STATUS_OUT_OF_MEMORY, CE_STATUS_DEVICE
CE_C_API ce_status ce_memory_create(ce_context* context, size_t bytes, ce_memory** memory);
/// Frees it. Does nothing for NULL.
CE_C_API void ce_memory_destroy(ce_memory* memory);
/// The first byte, on the device; NULL for NULL.
CE_C_API void* ce_memory_data(const ce_memory* memory);
/// Its size; 0 for NULL.
CE_C_API size_t ce_memory_bytes(const ce_memory* memory);
/// Blocking copies of all its bytes from and to host memory. \returns CE_STATUS_INVALID_ARGUMENT for NULL,
/// CE_STATUS_DEVICE
CE_C_API ce_status ce_memory_upload(ce_memory* memory, const void* from);
CE_C_API ce_status ce_memory_download(const ce_memory* memory, void* to);

// ---- Counters -----------------------------------------------------------------------------------------

/// Counters of the library in this process, over all contexts and threads. If the environment variable CE_STATS names a
/// file, the library writes them there as Prometheus text every few seconds and at the end of the program.
typedef struct ce_stats {
  size_t struct_size;
  uint64_t calls;     ///< calls of operations, of ..._prepare() and of ce_plan_run(), including failed ones
  uint64_t known;     ///< those of them that launched without looking up a kernel
  uint64_t tuned;     ///< problems that were tuned
  uint64_t fallback;  ///< times that a problem got a kernel without a winner
  uint64_t compiled;  ///< kernels that were compiled
  uint64_t waited;    ///< calls that waited for another thread or process to tune their problem
  uint64_t errors;    ///< calls that failed
} ce_stats;
#define CE_STATS_INIT \
  { sizeof(ce_stats), 0, 0, 0, 0, 0, 0, 0 }

/// Fills in the counts, in as many fields as `struct_size` covers. \returns CE_STATUS_INVALID_ARGUMENT for NULL
CE_C_API ce_status ce_get_stats(ce_stats* stats);

// ---- Log ----------------------------------------------------------------------------------------------

typedef int32_t ce_log_level;
enum { CE_LOG_DEBUG = 0, CE_LOG_INFO = 1, CE_LOG_WARNING = 2 };

/// Receives one line without its newline, which is valid until the function returns, and the `data` given to
/// ce_set_log_sink(). Any thread may call it, one call at a time. Inside the sink, operations on problems that a
/// context has no kernel for yet return CE_STATUS_UNSUPPORTED.
typedef void (*ce_log_sink)(void* data, ce_log_level level, const char* line);

/// Replaces the sink of the process. Waits for a running call of the old sink, unless that call is the caller. NULL
/// restores the default, which writes lines of at least the level in the environment variable CE_LOG (debug, info,
/// warning, off; default info) to standard error.
CE_C_API ce_status ce_set_log_sink(ce_log_sink sink, void* data);

/// 1 if CE_LOG asks for lines of this level, else 0; for sinks that respect it.
CE_C_API int32_t ce_log_is_wanted(ce_log_level level);

#ifdef __cplusplus
}
#endif

#endif  // CE_CE_H
