#include "runtime/cuda/nvrtc_use.hpp"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "ce/error.hpp"

namespace ce::runtime::cuda {
namespace {

thread_local bool inside = false;

struct State {
  std::atomic<pid_t> process = ::getpid();  ///< the process whose threads are counted
  std::mutex mutex;
  std::condition_variable left;
  int users = 0;
  bool ending = false;
};

State& state() {
  static State& instance = *new State;  // never destroyed: threads may still be leaving NVRTC
  return instance;
}

/// Called at the program's end. Does not wait for a thread that ends the program from inside NVRTC, nor, in a child of
/// fork(), for threads of the parent.
void end() {
  if (state().process != ::getpid()) return;
  std::unique_lock lock(state().mutex);
  state().ending = true;
  state().left.wait(lock, [] { return state().users == (inside ? 1 : 0); });
}

}  // namespace

NvrtcUse::NvrtcUse() {
  const std::lock_guard lock(state().mutex);
  if (state().process.exchange(::getpid()) != ::getpid()) state().users = 0;
  if (state().ending)
    throw Error(ErrorKind::interrupted, "the program is ending, so ce compiles nothing more");
  ++state().users;
  inside = true;
}

NvrtcUse::~NvrtcUse() {
  // Handlers run in reverse order of registration. Each use registers it again, since each may have created statics.
  std::atexit(end);
  inside = false;
  const std::lock_guard lock(state().mutex);
  --state().users;
  state().left.notify_all();
}

}  // namespace ce::runtime::cuda
