#pragma once
/// \file
/// Values that a process creates at their first use.

#include <atomic>
#include <memory>

namespace ce {

/// Never destroyed: threads may use the value until the process ends. Threads that meet at the first use may each
/// create one; the first one stays. No thread waits for another, unlike at a static of a function: in a child of fork()
/// the other thread may exist only in the parent.
template <class T>
class MadeOnce {
 public:
  template <class Make>
  const T& get(const Make& make) {
    if (const T* made = if_made()) return *made;
    auto own = std::make_unique<const T>(make());
    const T* first = nullptr;
    if (made_.compare_exchange_strong(first, own.get(), std::memory_order_acq_rel)) return *own.release();
    return *first;
  }
  [[nodiscard]] const T* if_made() const noexcept { return made_.load(std::memory_order_acquire); }

 private:
  std::atomic<const T*> made_ = nullptr;
};

}  // namespace ce
