#pragma once
/// \file
/// Kernel threads as fibers, and the switches between them and their scheduler.

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <memory>
#include <utility>

#include "runtime/host/group.hpp"
#include "runtime/host/stacks.hpp"
#include "runtime/host/thread_state.hpp"

namespace ce::runtime::host {

/// A thread of the kernel: the state that the kernel sees, and its position.
struct Fiber : ThreadState {
  GroupScheduler::Impl* scheduler = nullptr;
  boost::context::fiber context;  ///< empty before its first step and after its last
  Stack stack;
  StackSwitch side;
};

/// The scheduler's side of the switches to its fibers and back.
class FiberSwitch {
 public:
  /// Makes a fiber that will run `body` to its end.
  template <class Body>
  void start(Fiber& fiber, Body body) {
    forget_old_frames(fiber.stack);
    fiber.context = boost::context::fiber(std::allocator_arg, Borrowed{fiber.stack},
                                          [this, &fiber, body](boost::context::fiber&& scheduler) {
                                            scheduler_ = std::move(scheduler);
                                            fiber.side.arrive(&stack_);
                                            body();
                                            fiber.side.leave_for_ever(stack_);
                                            return std::move(scheduler_);
                                          });
  }

  /// For the scheduler: returns when the fiber has suspended itself or ended.
  void resume(Fiber& fiber) {
    StackSwitch here;
    here.leave(fiber.stack);
    fiber.context = std::move(fiber.context).resume();
    here.arrive();
  }

  /// For the running fiber: returns when it is resumed.
  void suspend(Fiber& fiber) {
    fiber.side.leave(stack_);
    scheduler_ = std::move(scheduler_).resume();
    fiber.side.arrive(&stack_);
  }

 private:
  /// Lends Boost.Context a stack that the pool still owns.
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

  boost::context::fiber scheduler_;
  Stack stack_;  // the scheduler's stack
};

}  // namespace ce::runtime::host
