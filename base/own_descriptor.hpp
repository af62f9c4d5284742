#pragma once
/// \file
/// File descriptors that children do not inherit.

#include <functional>
#include <utility>

namespace ce {

/// A file descriptor of this process alone: a child of fork() has it closed. Else what it locks would stay locked, and
/// who waits for its end would wait, until the child has ended, too. (What starts programs asks for O_CLOEXEC.)
class OwnDescriptor {
 public:
  OwnDescriptor() noexcept = default;
  /// \param open  returns a descriptor, which no child ever sees, or less than 0, with errno as it is then
  explicit OwnDescriptor(const std::function<int()>& open);
  OwnDescriptor(OwnDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OwnDescriptor& operator=(OwnDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OwnDescriptor() { reset(); }

  [[nodiscard]] int get() const noexcept { return descriptor_; }
  /// Closes it; in a child of the process that opened it there is nothing to close.
  void reset() noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace ce
