#include "base/own_descriptor.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <system_error>
#include <vector>

namespace ce {
namespace {

/// The descriptors that are open. While a thread holds the mutex, no other thread forks.
struct Open {
  std::mutex mutex;
  std::vector<int> descriptors;
};

/// Never destroyed: it must outlive every thread.
Open& opened() {
  static Open& open = *new Open;
  return open;
}

void close_all() noexcept {
  for (const int descriptor : opened().descriptors) ::close(descriptor);
  opened().descriptors.clear();
  opened().mutex.unlock();
}

/// \throws std::system_error
void watch_forks() {
  static const int failure =
      ::pthread_atfork([] { opened().mutex.lock(); }, [] { opened().mutex.unlock(); }, close_all);
  if (failure != 0) throw std::system_error(failure, std::generic_category(), "pthread_atfork");
}

}  // namespace

OwnDescriptor::OwnDescriptor(const std::function<int()>& open) {
  watch_forks();
  Open& all = opened();
  const std::lock_guard lock(all.mutex);
  all.descriptors.reserve(all.descriptors.size() +
                          1);  // reserved first, so that an opened descriptor cannot be lost
  descriptor_ = open();
  if (descriptor_ >= 0) all.descriptors.push_back(descriptor_);
}

void OwnDescriptor::reset() noexcept {
  const int descriptor = std::exchange(descriptor_, -1);
  if (descriptor < 0) return;
  Open& all = opened();
  const std::lock_guard lock(all.mutex);
  const auto found = std::ranges::find(all.descriptors, descriptor);
  if (found == all.descriptors.end()) return;
  all.descriptors.erase(found);
  ::close(descriptor);
}

}  // namespace ce
