#include "runtime/host/group.hpp"

#include <fmt/format.h>

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ce/base/error.hpp"
#include "runtime/host/guard.hpp"
#include "runtime/host/shared_memory.hpp"
#include "runtime/host/stacks.hpp"

namespace ce::runtime::host {
namespace {

using host_abi::lanes;
using host_abi::Place;
using host_abi::Scope;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((next() >> 32) * bound >> 32);
  }

 private:
  std::uint64_t state_;
};

/// Removes and returns one of the items at random.
template <class Items>
auto take_any(Items& items, Random& random) {
  auto& chosen = items[random.below(static_cast<std::uint32_t>(items.size()))];
  const auto taken = chosen;
  chosen = items.back();
  items.pop_back();
  return taken;
}

/// Lends Boost.Context a stack that the pool goes on owning.
struct Borrowed {
  Stack stack;
  boost::context::stack_context allocate() const {
    boost::context::stack_context context;
    context.sp = stack.bottom + stack.size;
    context.size = stack.size;
    return context;
  }
  void deallocate(boost::context::stack_context&) const noexcept {}
};

/// Leaves a kernel whose launch has already failed.
struct Abandoned {};

enum class State { unstarted, ready, waiting, finished };

/// A thread of the kernel: what the kernel sees of it, and where it stands.
struct Fiber : host_abi::Thread {
  GroupScheduler::Impl* scheduler = nullptr;
  boost::context::fiber context;
  Stack stack;
  StackSwitch side;
  State state = State::unstarted;
  Scope scope = Scope::block;  // of the barrier it waits at
  Place place = {};
};

/// Those who have arrived so far, of all who must.
struct Barrier {
  const Fiber* first = nullptr;
  std::uint32_t arrived = 0;
};

struct Warp {
  host_abi::Exchange exchange;
  Barrier barrier;
  std::vector<int> ready;  // lanes
};

struct BlockState : host_abi::Block {
  Barrier barrier;
};

bool same(const Place& a, const Place& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

std::string text(const Place& place) { return fmt::format("{}:{}", place.file, place.line); }

/// Of a thread that is not running: "waits for its block at x.cu:12".
std::string whereabouts(const Fiber& fiber) {
  if (fiber.state == State::finished) return "returned from the kernel";
  return fmt::format("waits for its {} at {}", fiber.scope == Scope::warp ? "warp" : "block",
                     text(fiber.place));
}

}  // namespace

class GroupScheduler::Impl {
 public:
  explicit Impl(std::uint64_t seed) : seed_(seed) {}

  void run(const Kernel& kernel, const Launch& launch, const void* arguments, std::uint64_t group) {
    prepare(kernel, launch, arguments, group);
    Random random(Random(Random(seed_).next() ^ group).next());
    while (!ready_warps_.empty() && !failure_) run_warp(take_any(ready_warps_, random), random);
    if (!failure_) failure_ = failure_at_end();
    if (failure_) {
      abandon();
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

 private:
  static const host_abi::Services services;

  static Fiber& fiber_of(host_abi::Thread& thread) { return static_cast<Fiber&>(thread); }

  // ---- before and after ----

  void prepare(const Kernel& kernel, const Launch& launch, const void* arguments, std::uint64_t group) {
    kernel_ = &kernel;
    arguments_ = arguments;
    current_ = kernel.current();
    threads_ = launch.threads;
    warps_per_block_ = launch.threads / lanes;
    abandoning_ = false;
    failure_ = nullptr;
    const std::size_t count = std::size_t{launch.threads} * launch.cluster;
    stacks_.reserve(count);
    if (fibers_.size() != count) fibers_ = std::vector<Fiber>(count);
    warps_.resize(count / lanes);
    blocks_.resize(launch.cluster);
    shared_.start(launch.cluster, launch.shared_bytes);
    const std::uint64_t first_block = group * launch.cluster;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const std::uint64_t index = first_block + b;
      blocks_[b] = {{.index = static_cast<long long>(index), .count = launch.blocks, .shared = shared_.of(b)},
                    {}};
    }
    for (std::size_t i = 0; i < count; ++i) reset(i);
    ready_warps_.clear();
    for (Warp& warp : warps_) make_ready(warp);
  }

  void reset(std::size_t i) {
    Fiber& fiber = fibers_[i];
    const auto index = static_cast<int>(i % threads_);
    Warp& warp = warps_[i / lanes];
    static_cast<host_abi::Thread&>(fiber) = {.index = index,
                                             .lane = index % lanes,
                                             .warp = index / lanes,
                                             .exchanges = 0,
                                             .exchange = &warp.exchange,
                                             .block = &blocks_[i / threads_],
                                             .services = &services};
    fiber.scheduler = this;
    fiber.stack = stacks_[i];
    fiber.side = {};
    fiber.state = State::unstarted;
    if (fiber.lane == 0) warp.barrier = {};
  }

  /// Every fiber has finished, or waits for one that never comes.
  [[nodiscard]] std::exception_ptr failure_at_end() const {
    for (const Fiber& fiber : fibers_)
      if (fiber.state == State::waiting) return std::make_exception_ptr(error(fiber, missing(fiber)));
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      if (!guard_is_intact(shared_.guard(b)))
        return std::make_exception_ptr(DeviceError(
            call(), 0, fmt::format("block {} wrote past the end of its shared memory", blocks_[b].index)));
    return nullptr;
  }

  /// Which thread of the barrier's scope is not at the barrier where this one waits. One that has returned
  /// explains more than one that waits elsewhere.
  [[nodiscard]] std::string missing(const Fiber& waiting) const {
    const auto self = static_cast<std::size_t>(&waiting - fibers_.data());
    const std::size_t size = waiting.scope == Scope::warp ? lanes : threads_;
    const std::span<const Fiber> scope{&fibers_[self / size * size], size};
    const Fiber* other = nullptr;
    for (const Fiber& fiber : scope) {
      if (fiber.state == State::waiting && fiber.scope == waiting.scope) continue;
      if (other == nullptr || fiber.state == State::finished) other = &fiber;
      if (fiber.state == State::finished) break;
    }
    return fmt::format("thread {} {}, but thread {} {}", waiting.index, whereabouts(waiting), other->index,
                       whereabouts(*other));
  }

  [[nodiscard]] std::string call() const { return fmt::format("launch of {}", kernel_->name); }

  [[nodiscard]] DeviceError error(const Fiber& fiber, std::string_view message) const {
    return {call(), 0, fmt::format("block {}: {} (CE_HOST_SEED={})", fiber.block->index, message, seed_)};
  }

  /// Brings every started fiber to its end, so that what lives on its stack is destroyed.
  void abandon() {
    abandoning_ = true;
    for (Fiber& fiber : fibers_)
      if (fiber.context) resume(fiber);
  }

  // ---- the order of things ----

  void make_ready(Warp& warp) {
    warp.ready.resize(lanes);
    for (int lane = 0; lane < lanes; ++lane) warp.ready[lane] = lane;
    ready_warps_.push_back(static_cast<std::uint32_t>(&warp - warps_.data()));
  }

  /// Greedy: other warps see nothing of this one until all its lanes wait for them.
  void run_warp(std::uint32_t index, Random& random) {
    Warp& warp = warps_[index];
    while (!warp.ready.empty() && !failure_)
      resume(fibers_[std::size_t{index} * lanes + take_any(warp.ready, random)]);
  }

  void arrive(Fiber& fiber, Scope scope, Place place) {
    if (abandoning_) throw Abandoned{};
    const auto index = static_cast<std::size_t>(&fiber - fibers_.data());
    Warp& warp = warps_[index / lanes];
    Barrier& barrier = scope == Scope::warp ? warp.barrier : blocks_[index / threads_].barrier;
    fiber.state = State::waiting;
    fiber.scope = scope;
    fiber.place = place;
    if (barrier.arrived == 0) barrier.first = &fiber;
    if (!same(barrier.first->place, place))
      throw error(fiber, fmt::format("thread {} {}, but thread {} {}", barrier.first->index,
                                     whereabouts(*barrier.first), fiber.index, whereabouts(fiber)));
    if (++barrier.arrived == (scope == Scope::warp ? lanes : threads_)) {
      barrier = {};
      release(index, scope);
    }
    suspend(fiber);
  }

  /// All who waited at the barrier of the fiber with this index.
  void release(std::size_t index, Scope scope) {
    const std::size_t size = scope == Scope::warp ? lanes : threads_;
    const std::size_t first = index / size * size;
    for (std::size_t i = first; i < first + size; ++i) fibers_[i].state = State::ready;
    if (scope == Scope::warp) {
      for (int lane = 0; lane < lanes; ++lane) warps_[first / lanes].ready.push_back(lane);
    } else {
      for (std::size_t w = 0; w < warps_per_block_; ++w) make_ready(warps_[first / lanes + w]);
    }
  }

  // ---- switching ----

  void resume(Fiber& fiber) {
    *current_ = &fiber;
    if (fiber.state == State::unstarted) start(fiber);
    StackSwitch here;
    here.leave(fiber.stack);
    fiber.context = std::move(fiber.context).resume();
    here.arrive();
  }

  void start(Fiber& fiber) {
    forget_old_frames(fiber.stack);
    fiber.state = State::ready;
    fiber.context = boost::context::fiber(std::allocator_arg, Borrowed{fiber.stack},
                                          [this, &fiber](boost::context::fiber&& scheduler) {
                                            scheduler_context_ = std::move(scheduler);
                                            fiber.side.arrive(&scheduler_stack_);
                                            run_kernel(fiber);
                                            fiber.side.leave_for_ever(scheduler_stack_);
                                            return std::move(scheduler_context_);
                                          });
  }

  void run_kernel(Fiber& fiber) {
    try {
      kernel_->entry(arguments_);
    } catch (const Abandoned&) {  // the failure is known already
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
    fiber.state = State::finished;
  }

  void suspend(Fiber& fiber) {
    fiber.side.leave(scheduler_stack_);
    scheduler_context_ = std::move(scheduler_context_).resume();
    fiber.side.arrive(&scheduler_stack_);
    if (abandoning_) throw Abandoned{};
  }

  static void serve_barrier(host_abi::Thread& thread, Scope scope, Place place) {
    fiber_of(thread).scheduler->arrive(fiber_of(thread), scope, place);
  }

  static void serve_fail(host_abi::Thread& thread, const char* message, Place place) {
    const Fiber& fiber = fiber_of(thread);
    throw fiber.scheduler->error(fiber, fmt::format("thread {} {} at {}", fiber.index, message, text(place)));
  }

  std::uint64_t seed_;
  const Kernel* kernel_ = nullptr;
  const void* arguments_ = nullptr;
  host_abi::Thread** current_ = nullptr;  // of the kernel's shared object on this OS thread
  std::size_t threads_ = 0, warps_per_block_ = 0;
  Stacks stacks_;
  SharedMemory shared_;
  std::vector<Fiber> fibers_;  // of all blocks of the group, block after block
  std::vector<Warp> warps_;
  std::vector<BlockState> blocks_;
  std::vector<std::uint32_t> ready_warps_;
  boost::context::fiber scheduler_context_;
  Stack scheduler_stack_;
  bool abandoning_ = false;
  std::exception_ptr failure_;
};

const host_abi::Services GroupScheduler::Impl::services = {.barrier = &serve_barrier, .fail = &serve_fail};

GroupScheduler::GroupScheduler(std::uint64_t seed) : impl_(std::make_unique<Impl>(seed)) {}
GroupScheduler::~GroupScheduler() = default;

void GroupScheduler::run(const Kernel& kernel, const Launch& launch, const void* arguments,
                         std::uint64_t group) {
  impl_->run(kernel, launch, arguments, group);
}

}  // namespace ce::runtime::host
