#pragma once
/// \file
/// File descriptors that child processes do not inherit.

#include <functional>
#include <utility>

namespace ce {

/// A file descriptor of this process alone: a child of fork() closes it. Otherwise a lock on the file would last, and a
/// reader would wait for the end of the stream, until the child has ended, too. (Code that starts programs uses
/// O_CLOEXEC.)
class OwnDescriptor {
 public:
  OwnDescriptor() noexcept = default;
  /// \param open  returns a descriptor, or a negative number and sets errno; no child ever sees the descriptor
  explicit OwnDescriptor(const std::function<int()>& open);
  OwnDescriptor(OwnDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OwnDescriptor& operator=(OwnDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OwnDescriptor() { reset(); }

  [[nodiscard]] int get() const noexcept { return descriptor_; }
  /// Closes the descriptor. A child of the process that opened it has closed it already.
  void reset() noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace ce
