#pragma once
/// \file
/// The stacks that fibers run on.

#include <cstddef>

namespace ce::runtime::host {

/// The address range of a stack, lowest address first.
struct Stack {
  std::byte* bottom = nullptr;
  std::size_t size = 0;
};

/// One mapping that is cut into stacks. Pages that no fiber touches take no memory. Not thread safe.
class Stacks {
 public:
  Stacks() = default;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks() { unmap(); }

  /// Makes room for `count` stacks. The old contents are lost if that takes a new mapping.
  /// \throws DeviceError if there is no address space left
  void reserve(std::size_t count);
  [[nodiscard]] Stack operator[](std::size_t i) const;

 private:
  void unmap() noexcept;

  std::byte* memory_ = nullptr;
  std::size_t count_ = 0;
};

/// Called before the first frame is put on a stack that an earlier fiber has used.
void forget_old_frames(Stack stack) noexcept;

/// Tells AddressSanitizer which stack is in use. Each side of a switch has one of these objects and calls leave() right
/// before the switch away and arrive() right after the switch back. Without AddressSanitizer both do nothing.
class StackSwitch {
 public:
  void leave(Stack to) noexcept;
  /// Called if the leaving side is never resumed.
  void leave_for_ever(Stack to) noexcept;
  /// \param from  receives the stack that was left, unless null
  void arrive(Stack* from = nullptr) noexcept;

 private:
  [[maybe_unused]] void* fake_stack_ = nullptr;  // AddressSanitizer's own data for this side
};

}  // namespace ce::runtime::host
