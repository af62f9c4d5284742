#include "runtime/workers/pool.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "base/built_version.hpp"
#include "base/log.hpp"
#include "ce/error.hpp"
#include "runtime/cuda/keep_source.hpp"
#include "runtime/workers/process.hpp"
#include "runtime/workers/worker.hpp"

namespace ce::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Grace period for a process that has closed its socket: it may be writing its core file.
constexpr milliseconds patience_with_the_dying{1'000};
/// Grace period for a process that still runs.
constexpr milliseconds no_patience{0};

/// Ends the worker. \returns how, in words that follow "the compiler process"
ProcessEnd end(WorkerProcess& process, Transfer transfer, milliseconds limit) {
  if (transfer == Transfer::closed) return process.end(patience_with_the_dying);
  process.end(no_patience);
  return {.words = transfer == Transfer::late
                       ? fmt::format("was killed because it did not answer within {} s",
                                     std::chrono::duration<double>(limit).count())
                       : "was killed because its answer was invalid",
          .signal = SIGKILL,
          .by_owner = true};
}

constexpr const char* compiles_here = "kernels compile in this process, one at a time";

Binary outcome_of(Reply reply, const std::string& name) {
  switch (reply.outcome) {
    case Reply::Outcome::compiled: return std::move(reply.binary);
    case Reply::Outcome::refused: throw CompileError(name, reply.text, reply.source_path);
    case Reply::Outcome::unsupported: throw Unsupported(reply.text);
    case Reply::Outcome::device_failed:
      throw DeviceError(reply.call, static_cast<int>(reply.code), reply.text);
    case Reply::Outcome::failed: break;
  }
  const std::string before = fmt::format("compiling {}: ", name);  // NVRTC's errors contain it already
  throw Error(ErrorKind::compile, reply.text.starts_with(before) ? reply.text : before + reply.text);
}

}  // namespace

class WorkerPool::Worker {
 public:
  explicit Worker(const std::filesystem::path& program) : process_(program, compile_worker_argument) {}

  /// Exchanges greetings with a new process. \returns why it cannot be used; empty if it can
  std::string greet(const NvrtcChoice& nvrtc, milliseconds limit) {
    const Hello hello{.version = std::string(built_version()), .nvrtc = nvrtc.path};
    Frame frame;
    const Transfer transfer = exchange(encode(hello), frame, limit);
    const auto ready = decode<Ready>(frame);
    if (transfer != Transfer::done || !ready)
      return "the compiler process " + end(process_, transfer, limit).words;
    if (ready->protocol != hello.protocol || ready->version != hello.version)
      return fmt::format("it belongs to ce {} (protocol {}), but this is ce {} (protocol {})", ready->version,
                         ready->protocol, hello.version, hello.protocol);
    if (!ready->problem.empty()) return ready->problem;
    nvrtc_version_ = ready->nvrtc_version;
    if (!fits(nvrtc))
      return fmt::format("it uses NVRTC {}, but this process uses {}", nvrtc_version_, nvrtc.version);
    return {};
  }

  /// Whether its NVRTC is the one that the calling process has opened.
  [[nodiscard]] bool fits(const NvrtcChoice& nvrtc) const {
    return nvrtc.version.empty() || nvrtc.version == nvrtc_version_;
  }
  /// Whether the worker is idle. An idle worker sends nothing: one that does has died, or is out of step.
  [[nodiscard]] bool waits() const noexcept { return process_.channel().quiet(); }
  void shut_down() noexcept { process_.channel().shut_down(); }

  /// Why the process gave no answer.
  struct Failure {
    std::string text;
    bool was_killed = false;  ///< by the user or the system, for example when memory is short
  };
  /// Sends a job. \returns the answer; nothing if there is none
  std::optional<Reply> compile(const std::string& job, milliseconds limit, Failure& failure) {
    Frame frame;
    const Transfer transfer = exchange(job, frame, limit);
    auto reply = transfer == Transfer::done ? decode<Reply>(frame) : std::nullopt;
    if (!reply) {
      const ProcessEnd ended = end(process_, transfer, limit);
      failure = {.text = "the compiler process " + ended.words,
                 .was_killed = ended.signal == SIGKILL && !ended.by_owner};
    }
    return reply;
  }

 private:
  Transfer exchange(const std::string& question, Frame& answer, milliseconds limit) {
    const Deadline deadline = Clock::now() + limit;
    const Transfer sent = process_.channel().send(question, deadline);
    return sent == Transfer::done ? process_.channel().receive(answer, deadline) : sent;
  }

  WorkerProcess process_;
  std::string nvrtc_version_;
};

/// A worker for one request; it returns to the idle ones only after a valid answer.
class WorkerPool::Lease {
 public:
  Lease(WorkerPool& pool, std::unique_ptr<Worker> worker) : pool_(pool), worker_(std::move(worker)) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    if (worker_ == nullptr) return;
    if (sound_)
      pool_.give_back(std::move(worker_));
    else
      pool_.discard(std::move(worker_));
  }

  [[nodiscard]] Worker* worker() const noexcept { return worker_.get(); }
  void keep() noexcept { sound_ = true; }

 private:
  WorkerPool& pool_;
  std::unique_ptr<Worker> worker_;
  bool sound_ = false;
};

WorkerPool::WorkerPool(WorkerSettings settings)
    : settings_(std::move(settings)),
      owner_(::getpid()),
      size_(settings_.program.empty() ? 0 : settings_.workers) {
  idle_.reserve(static_cast<std::size_t>(size_));
  if (size_ > 0 || settings_.workers == 0) return;
  problem_ = fmt::format("ce-tune was not found; set CE_WORKER to its file; looked at {}",
                         fmt::join(settings_.tried, ", "));
}

WorkerPool::~WorkerPool() {
  if (::getpid() != owner_) return;
  // All workers end at the same time.
  for (const auto& worker : idle_) worker->shut_down();
}

int WorkerPool::size() const {
  if (::getpid() != owner_) return 0;
  const std::lock_guard lock(mutex_);
  return size_;
}

std::string WorkerPool::problem() const {
  if (::getpid() != owner_) return "the workers belong to the parent process, which forked this one";
  const std::lock_guard lock(mutex_);
  return problem_;
}

std::optional<Binary> WorkerPool::compile(const CompileRequest& request, int capability,
                                          const NvrtcChoice& nvrtc) {
  // Checked first: in a forked process the mutex may be locked by a thread of the parent.
  if (::getpid() != owner_) return std::nullopt;
  const std::string job = encode(Job{static_cast<std::uint32_t>(capability), request});
  std::optional<Reply> reply;
  Worker::Failure failure;
  {
    Lease lease(*this, acquire(nvrtc));
    if (lease.worker() == nullptr) {
      // Workers are not started with the pool: a program whose kernels are all known compiles nothing.
      if (const std::string why = problem(); !why.empty())
        log_once(LogLevel::info, fmt::format("{}: {}", compiles_here, why));
      return std::nullopt;
    }
    reply = lease.worker()->compile(job, settings_.kernel_limit, failure);
    if (reply) lease.keep();
  }
  if (!reply && failure.was_killed)
    throw Error(ErrorKind::compile, fmt::format("compiling {}: {}", request.name, failure.text));
  if (!reply) throw CompileError(request.name, failure.text, keep_source(request));
  return outcome_of(*std::move(reply), request.name);
}

std::unique_ptr<WorkerPool::Worker> WorkerPool::acquire(const NvrtcChoice& nvrtc) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !idle_.empty() || running_ < size_ || size_ == 0; });
    std::unique_ptr<Worker> worker;
    if (!idle_.empty()) {
      worker = std::move(idle_.back());
      idle_.pop_back();
    } else if (size_ > 0) {
      ++running_;
    } else {
      return nullptr;
    }
    lock.unlock();
    if (worker == nullptr) {
      worker = start(nvrtc);
      if (worker != nullptr) return worker;
    } else {
      if (worker->waits() && worker->fits(nvrtc)) return worker;
      discard(std::move(worker));
    }
    lock.lock();
  }
}

std::unique_ptr<WorkerPool::Worker> WorkerPool::start(const NvrtcChoice& nvrtc) {
  std::string problem;
  try {
    auto worker = std::make_unique<Worker>(settings_.program);
    problem = worker->greet(nvrtc, settings_.start_limit);
    if (problem.empty()) return worker;
  } catch (const std::exception& error) {
    problem = error.what();
  }
  shrink(fmt::format("{} cannot work as a compiler process: {}", settings_.program.string(), problem));
  return nullptr;
}

/// Gives up the worker that was being started; no further one is tried.
void WorkerPool::shrink(const std::string& problem) {
  bool none_left = false;
  {
    const std::lock_guard lock(mutex_);
    size_ = --running_;
    none_left = size_ == 0;
    problem_ = problem;
  }
  changed_.notify_all();
  if (!none_left)
    log_once(LogLevel::debug, fmt::format("there are fewer compiler processes than requested: {}", problem));
}

void WorkerPool::give_back(std::unique_ptr<Worker> worker) noexcept {
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(worker));  // the constructor has reserved enough room
  }
  changed_.notify_one();
}

void WorkerPool::discard(std::unique_ptr<Worker> worker) noexcept {
  worker.reset();
  {
    const std::lock_guard lock(mutex_);
    --running_;
  }
  changed_.notify_one();
}

}  // namespace ce::runtime::cuda
