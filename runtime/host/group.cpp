#include "runtime/host/group.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "ce/error.hpp"
#include "runtime/host/cluster_barrier.hpp"
#include "runtime/host/deadlock.hpp"
#include "runtime/host/fiber.hpp"
#include "runtime/host/guard.hpp"
#include "runtime/host/mbarriers.hpp"
#include "runtime/host/order.hpp"
#include "runtime/host/report.hpp"
#include "runtime/host/shared_memory.hpp"
#include "runtime/host/stacks.hpp"
#include "runtime/host/thread_state.hpp"

namespace ce::runtime::host {
namespace {

using host_abi::lanes;
using host_abi::Place;
using host_abi::Scope;

/// Thrown to leave a kernel whose launch has already failed.
struct Abandoned {};

/// The arrivals so far at a barrier of all threads.
struct Barrier {
  const Fiber* first = nullptr;
  std::uint32_t arrived = 0;
};

struct Warp {
  host_abi::Exchange exchange;
  Barrier barrier;
};

struct BlockState : host_abi::Block {
  Barrier barrier;
  std::uint32_t unfinished = 0;  // number of threads
};

}  // namespace

class GroupScheduler::Impl {
 public:
  explicit Impl(std::uint64_t seed)
      : seed_(seed), report_(seed), cluster_barrier_(report_), mbarriers_(shared_, report_) {}

  void run(const Kernel& kernel, const Launch& launch, const void* arguments, std::uint64_t group) {
    prepare(kernel, launch, arguments, group);
    Random random(Random(Random(seed_).next() ^ group).next());
    run_all(random);
    if (!failure_) failure_ = failure_at_end();
    if (failure_) {
      abandon();
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

 private:
  static const host_abi::Services services;

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
    mbarriers_.start();
    awaiting_others_.clear();
    cluster_barrier_.start(launch.cluster, launch.threads);
    report_.start(kernel.name);
    const std::uint64_t first_block = group * launch.cluster;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const std::uint64_t index = first_block + b;
      blocks_[b] = {{.index = static_cast<long long>(index),
                     .count = launch.blocks,
                     .shared = shared_.of(b),
                     .rank = static_cast<int>(b)},
                    {},
                    launch.threads};
    }
    for (std::size_t i = 0; i < count; ++i) reset(i);
    order_.start(warps_.size());
  }

  void reset(std::size_t i) {
    Fiber& fiber = fibers_[i];
    const auto index = static_cast<int>(i % threads_);
    Warp& warp = warps_[i / lanes];
    static_cast<ThreadState&>(fiber) = {{.index = index,
                                         .lane = index % lanes,
                                         .warp = index / lanes,
                                         .exchanges = 0,
                                         .exchange = &warp.exchange,
                                         .block = &blocks_[i / threads_],
                                         .services = &services}};
    fiber.scheduler = this;
    fiber.stack = stacks_[i];
    fiber.side = {};
    if (fiber.lane == 0) warp.barrier = {};
  }

  /// The error of a launch in which no fiber can run: a fiber waits for ever, or wrote past its shared memory.
  [[nodiscard]] std::exception_ptr failure_at_end() const {
    const Deadlock deadlock{fibers_, threads_, cluster_barrier_, mbarriers_};
    for (const Fiber& fiber : fibers_)
      if (fiber.state == State::waiting)
        return std::make_exception_ptr(report_.error(*fiber.block, deadlock.explain(fiber)));
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      if (!guard_is_intact(shared_.guard(b)))
        return std::make_exception_ptr(report_.error(blocks_[b], "wrote past the end of its shared memory"));
    return nullptr;
  }

  /// Runs every started fiber to its end, so that objects on its stack are destroyed.
  void abandon() {
    abandoning_ = true;
    for (Fiber& fiber : fibers_)
      if (fiber.context) resume(fiber);
  }

  // ---- scheduling ----

  void run_all(Random& random) {
    try {
      while (!failure_) {
        if (const auto next = order_.next(random))
          resume(fibers_[*next]);
        else if (!land_one(random) && !look_again())
          return;
      }
    } catch (const DeviceError&) {  // from land_one(); exceptions of a kernel stay in its fiber
      failure_ = std::current_exception();
    }
  }

  [[nodiscard]] std::size_t index_of(const Fiber& fiber) const {
    return static_cast<std::size_t>(&fiber - fibers_.data());
  }
  [[nodiscard]] BlockState& block_of(const Fiber& fiber) {
    return blocks_[static_cast<std::size_t>(fiber.block->rank)];
  }

  void wait(Fiber& fiber, Awaited awaited, Place place) {
    fiber.state = State::waiting;
    fiber.awaited = awaited;
    fiber.place = place;
    suspend(fiber);
  }

  void wake(Fiber& fiber) {
    fiber.state = State::ready;
    order_.add(index_of(fiber));
  }

  // ---- barriers of warps and blocks ----

  void barrier(Fiber& fiber, Scope scope, Place place) {
    const Awaited awaited = scope == Scope::warp ? Awaited::warp : Awaited::block;
    const std::size_t warp = index_of(fiber) / lanes;
    Barrier& barrier = scope == Scope::warp ? warps_[warp].barrier : block_of(fiber).barrier;
    fiber.state = State::waiting;
    fiber.awaited = awaited;
    fiber.place = place;
    if (barrier.arrived == 0) barrier.first = &fiber;
    if (!same(barrier.first->place, place))
      throw report_.error(*fiber.block,
                          fmt::format("thread {} {}, but thread {} {}", barrier.first->index,
                                      whereabouts(*barrier.first), fiber.index, whereabouts(fiber)));
    if (++barrier.arrived == (scope == Scope::warp ? lanes : threads_)) {
      barrier = {};
      if (scope == Scope::warp)
        release_warp(warp);
      else
        release_block(static_cast<std::size_t>(fiber.block->rank));
    }
    suspend(fiber);
  }

  void release_warp(std::size_t warp) {
    for (std::size_t i = warp * lanes; i < (warp + 1) * lanes; ++i) fibers_[i].state = State::ready;
    order_.add_running_warp();
  }

  void release_block(std::size_t block) {
    for (std::size_t i = block * threads_; i < (block + 1) * threads_; ++i) fibers_[i].state = State::ready;
    for (std::size_t w = 0; w < warps_per_block_; ++w) order_.add_warp(block * warps_per_block_ + w);
  }

  // ---- clusters and mbarriers ----

  void cluster_arrive(Fiber& fiber, Place place) {
    if (!cluster_barrier_.arrive(fiber, place)) return;
    for (Fiber& other : fibers_)
      if (other.state == State::waiting && other.awaited == Awaited::cluster) wake(other);
  }

  void cluster_wait(Fiber& fiber, Place place) {
    if (cluster_barrier_.wait(fiber, place)) wait(fiber, Awaited::cluster, place);
  }

  /// The address of its own `bytes` of shared memory in another block of its cluster that still runs.
  void* counterpart(const Fiber& fiber, const void* own, std::size_t bytes, int rank, Place place) const {
    const auto block = static_cast<std::size_t>(fiber.block->rank);
    const auto other = static_cast<std::size_t>(rank);
    if (rank < 0 || other >= blocks_.size())
      throw report_.mistake(fiber, fmt::format("sends to block {} of a cluster of {}", rank, blocks_.size()),
                            place);
    if (!shared_.contains(block, own, bytes))
      throw report_.mistake(
          fiber, "sends to the counterpart of an address that is not in its block's shared memory", place);
    if (blocks_[other].unfinished == 0)
      throw report_.mistake(
          fiber, fmt::format("sends to block {}, which has returned,", blocks_[other].index), place);
    return shared_.counterpart(own, block, other);
  }

  void mbarrier_init(Fiber& fiber, unsigned long long& barrier, int count, Place place) {
    mbarriers_.init(fiber, barrier, count, place);
  }
  void mbarrier_arrive(Fiber& fiber, unsigned long long& barrier, Place place) {
    wake_all(mbarriers_.arrive(fiber, barrier, place));
  }
  void mbarrier_wait(Fiber& fiber, unsigned long long& barrier, int parity, Place place) {
    if (mbarriers_.wait(fiber, barrier, parity, place)) wait(fiber, Awaited::mbarrier, place);
  }
  bool mbarrier_test(Fiber& fiber, unsigned long long& barrier, int parity, Place place) {
    return mbarriers_.test(fiber, barrier, parity, place);
  }
  void mbarrier_arrive_expect_tx(Fiber& fiber, unsigned long long& barrier, int bytes, Place place) {
    wake_all(mbarriers_.expect(fiber, barrier, bytes, place));
  }
  void cluster_send(Fiber& fiber, void* to, const void* words, int bytes, unsigned long long& barrier,
                    int rank, Place place) {
    void* const there = counterpart(fiber, to, static_cast<std::size_t>(bytes), rank, place);
    const void* const at = counterpart(fiber, &barrier, sizeof barrier, rank, place);
    mbarriers_.send(fiber, there, words, bytes, *static_cast<const unsigned long long*>(at), place);
  }
  void bulk_load(Fiber& fiber, void* to, const void* from, int bytes, unsigned long long& barrier,
                 Place place) {
    wake_all(mbarriers_.load(fiber, to, from, bytes, barrier, place));
  }

  void wake_all(const Mbarriers::Woken& woken) {
    for (const ThreadState* thread : woken)
      wake(fibers_[static_cast<std::size_t>(thread->block->rank) * threads_ +
                   static_cast<std::size_t>(thread->index)]);
  }

  /// Called when no thread can run. So a thread that reads without waiting has read NaN by now. Returns false if no
  /// copy is awaited.
  bool land_one(Random& random) {
    const auto woken = mbarriers_.land_one(random);
    if (!woken) return false;
    wake_all(*woken);
    return true;
  }

  /// Other ranks are threads with schedulers of their own.
  void await_others(Fiber& fiber, Place place) {
    awaiting_others_.push_back(&fiber);
    wait(fiber, Awaited::others, place);
  }

  /// Called when no fiber of this group can run. Returns false if no fiber waits for other ranks.
  bool look_again() {
    if (awaiting_others_.empty()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    for (Fiber* fiber : std::exchange(awaiting_others_, {})) wake(*fiber);
    return true;
  }

  // ---- switching ----

  void resume(Fiber& fiber) {
    *current_ = &fiber;
    if (fiber.state == State::unstarted) start(fiber);
    switch_.resume(fiber);
  }

  void start(Fiber& fiber) {
    fiber.state = State::ready;
    switch_.start(fiber, [this, &fiber] { run_kernel(fiber); });
  }

  void run_kernel(Fiber& fiber) {
    BlockState& block = block_of(fiber);
    try {
      kernel_->entry(arguments_);
      cluster_barrier_.check_end(fiber);
      if (--block.unfinished == 0) mbarriers_.land_all(block);
    } catch (const Abandoned&) {  // the failure is recorded already
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
    fiber.state = State::finished;
  }

  void suspend(Fiber& fiber) {
    switch_.suspend(fiber);
    if (abandoning_) throw Abandoned{};
  }

  // ---- services ----

  /// Calls a method of the scheduler.
  template <auto method, class Result, class... Arguments>
  static Result serve(host_abi::Thread& thread, Arguments... arguments) {
    Fiber& fiber = static_cast<Fiber&>(thread);
    if (fiber.scheduler->abandoning_) throw Abandoned{};
    return (fiber.scheduler->*method)(fiber, arguments...);
  }

  static unsigned long long nanoseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<unsigned long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }

  void fail(Fiber& fiber, const char* message, Place place) { throw report_.mistake(fiber, message, place); }

  std::uint64_t seed_;
  const Kernel* kernel_ = nullptr;
  const void* arguments_ = nullptr;
  host_abi::Thread** current_ = nullptr;  // the kernel's shared object's pointer for this OS thread
  std::size_t threads_ = 0, warps_per_block_ = 0;
  Stacks stacks_;
  std::vector<Fiber> fibers_;  // all blocks of the group, block by block
  std::vector<Warp> warps_;
  std::vector<BlockState> blocks_;
  Order order_;
  Report report_;
  SharedMemory shared_;
  ClusterBarrier cluster_barrier_;
  Mbarriers mbarriers_;
  FiberSwitch switch_;
  std::vector<Fiber*> awaiting_others_;
  bool abandoning_ = false;
  std::exception_ptr failure_;
};

const host_abi::Services GroupScheduler::Impl::services = {
    .barrier = &serve<&Impl::barrier>,
    .cluster_arrive = &serve<&Impl::cluster_arrive>,
    .cluster_wait = &serve<&Impl::cluster_wait>,
    .mbarrier_init = &serve<&Impl::mbarrier_init>,
    .mbarrier_arrive = &serve<&Impl::mbarrier_arrive>,
    .mbarrier_wait = &serve<&Impl::mbarrier_wait>,
    .mbarrier_test = &serve<&Impl::mbarrier_test>,
    .mbarrier_arrive_expect_tx = &serve<&Impl::mbarrier_arrive_expect_tx>,
    .cluster_send = &serve<&Impl::cluster_send>,
    .bulk_load = &serve<&Impl::bulk_load>,
    .nanoseconds = &Impl::nanoseconds,
    .await_others = &serve<&Impl::await_others>,
    .fail = &serve<&Impl::fail>,
};

GroupScheduler::GroupScheduler(std::uint64_t seed) : impl_(std::make_unique<Impl>(seed)) {}
GroupScheduler::~GroupScheduler() = default;

void GroupScheduler::run(const Kernel& kernel, const Launch& launch, const void* arguments,
                         std::uint64_t group) {
  impl_->run(kernel, launch, arguments, group);
}

}  // namespace ce::runtime::host
