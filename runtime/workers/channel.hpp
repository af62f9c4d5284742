#pragma once
/// \file
/// Frames over file descriptors.

#include <chrono>
#include <string_view>
#include <utility>

#include "runtime/workers/frames.hpp"

namespace ce::runtime::cuda {

/// An owned file descriptor, closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor();

  [[nodiscard]] int get() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline no_deadline = Deadline::max();

enum class Transfer {
  done,
  closed,     ///< the other side has ended
  late,       ///< the deadline passed
  malformed,  ///< the bytes received are not a frame
};

/// Sends and receives whole frames. Raises no SIGPIPE over a socket. Not thread-safe.
class Channel {
 public:
  /// Uses one socket for both directions.
  explicit Channel(Descriptor socket) : in_(std::move(socket)), out_(in_.get()) {}
  /// Borrows `out`, which may be equal to `in`.
  Channel(Descriptor in, int out) : in_(std::move(in)), out_(out) {}

  /// \throws Error for a failure other than the other side's end
  [[nodiscard]] Transfer send(std::string_view frame, Deadline deadline = no_deadline);
  [[nodiscard]] Transfer receive(Frame& frame, Deadline deadline = no_deadline);

  /// Whether the other side is alive and has sent nothing that was not received.
  [[nodiscard]] bool quiet() const noexcept;
  /// Lets the other side see the end, even if another process holds a copy of this socket.
  void shut_down() noexcept;

 private:
  Transfer fill(std::string& bytes, std::size_t count, Deadline deadline);

  Descriptor in_;
  int out_;
};

}  // namespace ce::runtime::cuda
